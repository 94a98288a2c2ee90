# SPDX-License-Identifier: Apache-2.0
"""Executables of the ROS nodes; ``python -m sticker_uq.nodes detector`` is the same as the executable ``detector``.

Importing a node's dependencies takes seconds. A signal during that time ends the process as a later one does: without
traceback, with exit status 0.
"""

import gc
import importlib
import os
import signal
import sys
from functools import partial

from sticker_uq.imports import import_torchvision_without_compiler

_MODULES = {
    "detector": "detector.node",
    "supervisor": "supervisor.node",
    "image_source": "image_source.node",
    "recorder": "recorder.node",
    "console": "console.node",
}
"""The module whose ``main`` each executable runs."""


def run_executable(name: str) -> None:
    run_module(f"sticker_uq.nodes.{_MODULES[name]}")


def run_module(module: str) -> None:
    """Run ``main`` of ``module``. Does not return."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # an exception must not unwind half-imported libraries
        signal.signal(number, lambda *_: os._exit(0))
    import_torchvision_without_compiler()
    gc.disable()  # what is imported stays: the collector need not walk through it, now or while the node works
    main = importlib.import_module(module).main
    gc.freeze()
    gc.enable()
    sys.exit(main())


detector = partial(run_executable, "detector")
supervisor = partial(run_executable, "supervisor")
image_source = partial(run_executable, "image_source")
recorder = partial(run_executable, "recorder")
console = partial(run_executable, "console")


if __name__ == "__main__":
    run_executable(sys.argv.pop(1))
