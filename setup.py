# SPDX-License-Identifier: Apache-2.0
"""Build of the ROS 2 package sticker_uq (ament_python)."""

import re
import sys
from pathlib import Path

from setuptools import find_packages, setup

NAME = "sticker_uq"
SHARE = Path("share") / NAME


def installed_tree(folder: str) -> list[tuple[str, list[str]]]:
    """Returns data_files entries that install `folder` with all below it to share/sticker_uq."""
    files = sorted(p for p in Path(folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return [(str(SHARE / p.parent), [str(p)]) for p in files]


def required() -> list[str]:
    """Returns what the package imports outside ROS: the lines of requirements.txt from NumPy to the lab, as least versions.

    A ROS installation has NumPy, OpenCV and pandas of its own; they have no bound.
    """
    text = (Path(__file__).resolve().parent / "requirements.txt").read_text(encoding="utf-8")
    of_ros, everywhere = text.split("# Everywhere:")
    lines = everywhere.split("# sticker_uq_lab")[0].splitlines()
    own = [
        line.split("==")[0] for line in of_ros.splitlines() if line.startswith(("numpy", "opencv", "pandas"))
    ]
    return own + [line.replace("==", ">=") for line in lines if "==" in line]


def version() -> str:
    """Returns the version of sticker_uq/version.py."""
    text = (Path(__file__).resolve().parent / NAME / "version.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.M)[0]


setup(
    name=NAME,
    version=version(),
    description="Uncertainty-aware sticker detection for a robot cell that refurbishes laptops",
    license="Apache-2.0",
    maintainer="sticker_uq maintainers",
    maintainer_email="sticker-uq@users.noreply.github.com",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={
        NAME: ["words_*.json"],
        f"{NAME}.console": ["page/*"],
        f"{NAME}.detection": ["weights/*"],
        f"{NAME}.evaluation.reporting": ["templates/*"],
        f"{NAME}.perception.novelty": ["weights/*"],
    },
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (str(SHARE), ["package.xml"]),
        # a wheel has the command from its entry point, which runs the Python of its own environment
        *([] if "bdist_wheel" in sys.argv else [("bin", ["resource/sticker-uq"])]),
        *installed_tree("launch"),
        *installed_tree("config"),
    ],
    python_requires=">=3.11",
    install_requires=required(),
    extras_require={"test": ["pytest"]},
    zip_safe=False,
    entry_points={
        "console_scripts": [
            "sticker-uq = sticker_uq.cli:main",
            "detector = sticker_uq.nodes.__main__:detector",
            "supervisor = sticker_uq.nodes.__main__:supervisor",
            "image_source = sticker_uq.nodes.__main__:image_source",
            "recorder = sticker_uq.nodes.__main__:recorder",
            "console = sticker_uq.nodes.__main__:console",
        ]
    },
)
