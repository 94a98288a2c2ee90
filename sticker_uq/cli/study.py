"""``sticker-uq study``: detectors compared for accuracy, uncertainty and adversarial robustness."""

from __future__ import annotations

import typer

from sticker_uq.cli.study_statistics import statistics

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _about() -> None:
    """Which detector is most accurate, surest and hardest to deceive, and by how much (Wu et al.)."""


app.command()(statistics)
