# SPDX-License-Identifier: Apache-2.0
"""Patches the CMake exports of the ROS wheels so that interface packages can be built with them.

The exports contain include folders of the machine that built the wheels, and CMake refuses an imported target whose
include folders do not exist. They are replaced by this interpreter's folders. Files are replaced, not written in place,
because package managers link them to a cache that other environments share.
"""

import os
import re
import sys
import sysconfig
from pathlib import Path

import numpy

BUILD_MACHINE_PYTHON = r"/opt/python/cp3\d+-cp3\d+"
REPLACEMENTS = (
    (BUILD_MACHINE_PYTHON + r"/include/python3\.\d+", sysconfig.get_paths()["include"]),
    (BUILD_MACHINE_PYTHON + r"/lib/python3\.\d+/site-packages/numpy/_?core/include", numpy.get_include()),
)


def main() -> None:
    """Patch the CMake files below the environment's share folder."""
    changed = 0
    for path in (Path(sys.prefix) / "share").rglob("*.cmake"):
        text = original = path.read_text()
        for pattern, folder in REPLACEMENTS:
            text = re.sub(pattern, lambda _, folder=folder: folder, text)
        if text != original:
            temporary = path.with_name(path.name + ".new")
            temporary.write_text(text)
            os.replace(temporary, path)
            changed += 1
    print(f"patched {changed} CMake files of the ROS wheels")


main()
