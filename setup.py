"""Build of the ROS 2 package sticker_uq (ament_python)."""

from pathlib import Path

from setuptools import find_packages, setup

NAME = "sticker_uq"
SHARE = Path("share") / NAME


def installed_tree(folder: str) -> list[tuple[str, list[str]]]:
    """Returns data_files entries that install `folder` with all below it to share/sticker_uq."""
    files = sorted(p for p in Path(folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return [(str(SHARE / p.parent), [str(p)]) for p in files]


setup(
    name=NAME,
    version="0.2.0",
    description="Uncertainty-aware sticker detection for a robot cell that refurbishes laptops",
    license="Apache-2.0",
    maintainer="sticker_uq maintainers",
    maintainer_email="sticker-uq@users.noreply.github.com",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={
        f"{NAME}.cli": ["review.html"],
        f"{NAME}.console": ["page/*"],
        f"{NAME}.detection": ["weights/*"],
        f"{NAME}.evaluation.reporting": ["templates/*"],
        f"{NAME}.lab.datasets": ["prompts.yaml"],
        f"{NAME}.lab.robustness": ["*.yaml", "templates/*"],
        f"{NAME}.lab.studies.detectors": ["templates/*"],
        f"{NAME}.novelty": ["weights/*"],
    },
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (str(SHARE), ["package.xml"]),
        ("bin", ["resource/sticker-uq"]),
        *installed_tree("launch"),
        *installed_tree("config"),
    ],
    install_requires=["setuptools"],
    extras_require={
        "test": ["pytest"],
        "diffusers": ["diffusers", "transformers", "accelerate", "sentencepiece", "protobuf"],
    },
    zip_safe=False,
    entry_points={
        "console_scripts": [
            "sticker-uq = sticker_uq.cli:main",
            "detector = sticker_uq.nodes.__main__:detector",
            "supervisor = sticker_uq.nodes.__main__:supervisor",
            "cell_sim = sticker_uq.nodes.__main__:cell_sim",
            "image_source = sticker_uq.nodes.__main__:image_source",
            "recorder = sticker_uq.nodes.__main__:recorder",
            "console = sticker_uq.nodes.__main__:console",
        ],
    },
)
