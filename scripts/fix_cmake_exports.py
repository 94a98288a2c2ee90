"""Makes the ROS wheels in this Python environment usable for building interface packages.

The CMake exports in the wheels name header folders of the machine they were built on, and CMake refuses an imported
target whose include folders do not exist. They are replaced by this interpreter's folders. Files are replaced, not
rewritten: package managers link them to a cache that other environments share.
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
    """Rewrites every CMake file below the environment's share folder that needs it."""
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
    print(f"adapted {changed} CMake files of the ROS wheels to this machine")


main()
