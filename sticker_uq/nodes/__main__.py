"""The executables of the package; ``python -m sticker_uq.nodes detector`` is the same as the executable ``detector``.

Importing a node's dependencies takes seconds. A signal during that time ends the process as a later one does: without
traceback, with exit status 0.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

_MODULES = {
    "detector": "detector.node",
    "supervisor": "supervisor.node",
    "cell_sim": "simulation.cell_sim",
    "image_source": "simulation.image_source",
    "recorder": "recorder.node",
    "console": "console.node",
    "shadow": "shadow.node",
}
"""The module whose ``main`` each executable runs."""


def run(name: str) -> None:
    """Run the node ``name`` of this package until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # an exception must not unwind half-imported libraries
        signal.signal(number, lambda *_: os._exit(0))
    sys.exit(importlib.import_module(f"sticker_uq.nodes.{_MODULES[name]}").main())


def detector() -> None:
    """Entry point of the executable ``detector``."""
    run("detector")


def supervisor() -> None:
    """Entry point of the executable ``supervisor``."""
    run("supervisor")


def cell_sim() -> None:
    """Entry point of the executable ``cell_sim``."""
    run("cell_sim")


def image_source() -> None:
    """Entry point of the executable ``image_source``."""
    run("image_source")


def recorder() -> None:
    """Entry point of the executable ``recorder``."""
    run("recorder")


def console() -> None:
    """Entry point of the executable ``console``."""
    run("console")


def shadow() -> None:
    """Entry point of the executable ``shadow``."""
    run("shadow")


if __name__ == "__main__":
    run(sys.argv.pop(1))
