# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness``: the robustness assessment method of Wozniak et al. as commands."""

from __future__ import annotations

import typer

from sticker_uq.cli.robustness_init import init
from sticker_uq.cli.robustness_run import report, run

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _about() -> None:
    """Assess the performance of a cell under circumstances such as glare, blur and occlusion (Wozniak et al.)."""


app.command()(init)
app.command()(run)
app.command()(report)
