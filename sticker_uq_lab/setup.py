# SPDX-License-Identifier: Apache-2.0
"""Build of the ROS 2 package sticker_uq_lab (ament_python)."""

from pathlib import Path

from setuptools import find_packages, setup

NAME = "sticker_uq_lab"
VERSION = "0.4.0"
SHARE = Path("share") / NAME
COMMANDS = (
    "dataset", "demo", "dil", "improve", "monitors", "qualify", "robustness", "select", "study", "train",
)  # fmt: skip


def core() -> str:
    """What pip needs before: the package sticker_uq of this checkout, or of the same version."""
    beside = Path(__file__).resolve().parents[1]
    found = (beside / "sticker_uq" / "__init__.py").is_file()
    return f"sticker_uq @ {beside.as_uri()}" if found else f"sticker_uq=={VERSION}"


setup(
    name=NAME,
    version=VERSION,
    description="Data sets, training, qualification, simulation and studies for sticker_uq",
    license="Apache-2.0",
    maintainer="sticker_uq maintainers",
    maintainer_email="sticker-uq@users.noreply.github.com",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={
        f"{NAME}.datasets": ["prompts.yaml"],
        f"{NAME}.robustness": ["*.yaml"],
    },
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (str(SHARE), ["package.xml"]),
    ],
    python_requires=">=3.11",
    install_requires=[core(), "defusedxml>=0.7.1", "scikit-image>=0.26.0"],
    extras_require={
        "test": ["pytest"],
        "generate": ["openai", "diffusers>=0.42", "transformers", "accelerate", "sentencepiece", "protobuf"],
    },
    zip_safe=False,
    entry_points={
        "console_scripts": ["cell_sim = sticker_uq_lab.nodes.__main__:cell_sim"],
        "sticker_uq.commands": [f"{name} = {NAME}.cli.{name}" for name in COMMANDS],
    },
)
