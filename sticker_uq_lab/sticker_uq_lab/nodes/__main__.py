# SPDX-License-Identifier: Apache-2.0
"""Executable of the simulated cell; ``python -m sticker_uq_lab.nodes cell_sim`` is the same as the executable ``cell_sim``."""

import sys
from functools import partial

from sticker_uq.nodes.__main__ import run_module

_MODULES = {"cell_sim": "sticker_uq_lab.nodes.cell_sim"}

cell_sim = partial(run_module, _MODULES["cell_sim"])


if __name__ == "__main__":
    run_module(_MODULES[sys.argv.pop(1)])
