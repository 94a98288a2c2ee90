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


def run_executable(module: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # an exception must not unwind half-imported libraries
        signal.signal(number, lambda *_: os._exit(0))
    gc.disable()  # what is imported stays: the collector need not walk through it, now or while the node works
    main = importlib.import_module(f"sticker_uq.nodes.{module}").main
    gc.freeze()
    gc.enable()
    sys.exit(main())


detector = partial(run_executable, "detector.node")
supervisor = partial(run_executable, "supervisor.node")
cell_sim = partial(run_executable, "simulation.cell_sim")
image_source = partial(run_executable, "simulation.image_source")
recorder = partial(run_executable, "recorder.node")
console = partial(run_executable, "console.node")


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
