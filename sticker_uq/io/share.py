# SPDX-License-Identifier: Apache-2.0
"""This package as it is installed: its share folder, and the versions of what it needs."""

import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sticker_uq.scene import InvalidInput
from sticker_uq.version import __version__

PACKAGE = "sticker_uq"
LAB = "sticker_uq_lab"
"""The package with what is done before and after: simulation, data sets, training, studies."""
INSTALL_LAB = f"scripts/setup, or colcon with its folder in --base-paths, or pip install ./{LAB}"
"""What a person does to have it."""


def share_folder() -> Path:
    """The installed folder of this package's shared files, or the repository's root when it runs from a checkout.

    Raises :class:`InvalidInput` when neither contains the configuration files.
    """
    prefixes = (*ament_prefixes(), Path(sys.prefix))  # the last one is of pip install
    candidates = [prefix / "share" / PACKAGE for prefix in prefixes]
    candidates.append(Path(__file__).resolve().parents[2])
    for folder in candidates:
        if (folder / "config" / "cell.yaml").is_file():
            return folder
    raise InvalidInput(
        f"config/cell.yaml was not found under {', '.join(map(str, candidates))}: source the workspace's setup file"
    )


def has_lab() -> bool:
    """Whether sticker_uq_lab is installed; a folder of that name, as this repository has, is not enough."""
    try:
        return find_spec(f"{LAB}.nodes") is not None
    except ModuleNotFoundError:
        return False


def ament_prefixes() -> list[Path]:
    """The folders that ROS packages are installed below."""
    return [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]


def versions(*distributions: str) -> dict[str, str]:
    """The versions of those ``distributions`` that are installed, and of this package as it is."""
    found = {}
    for name in distributions:
        if name == "sticker_uq":  # what is installed in a checkout may name an earlier one
            found[name] = __version__
            continue
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def environment(settings: Mapping[str, Any], *distributions: str) -> dict[str, str]:
    """What a report says of Python, this machine, the versions of ``distributions`` and ``settings``."""
    return {
        "Python": platform.python_version(),
        "machine": platform.platform(),
        **versions(*distributions),
        **{f"setting {name}": str(value) for name, value in settings.items()},
    }
