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

_MODULES = {
    "detector": "detector.node",
    "supervisor": "supervisor.node",
    "cell_sim": "simulation.cell_sim",
    "image_source": "simulation.image_source",
    "recorder": "recorder.node",
    "console": "console.node",
}
"""The module whose ``main`` each executable runs."""


def run_executable(name: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # an exception must not unwind half-imported libraries
        signal.signal(number, lambda *_: os._exit(0))
    gc.disable()  # what is imported stays: the collector need not walk through it, now or while the node works
    module = importlib.import_module(f"sticker_uq.nodes.{_MODULES[name]}")
    gc.freeze()
    gc.enable()
    sys.exit(module.main())


detector = partial(run_executable, "detector")
supervisor = partial(run_executable, "supervisor")
cell_sim = partial(run_executable, "cell_sim")
image_source = partial(run_executable, "image_source")
recorder = partial(run_executable, "recorder")
console = partial(run_executable, "console")


if __name__ == "__main__":
    run_executable(sys.argv.pop(1))
