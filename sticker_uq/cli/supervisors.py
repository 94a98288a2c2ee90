"""``sticker-uq supervisors``: scores of how little one object can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from sticker_uq.datasets.files import atomic_write
from sticker_uq.scene import InvalidInput
from sticker_uq.studies.digits import digits
from sticker_uq.studies.report import as_markdown
from sticker_uq.studies.supervisors import StudySettings, run_study

app = typer.Typer(no_args_is_help=True, add_completion=False)
_DEFAULT = StudySettings()


@app.callback()
def _about() -> None:
    """Supervisors: scores of how little one object can be trusted. Not the node called supervisor, which opens the gate."""


@app.command()
def study(
    out: Annotated[Path, typer.Option(help="Folder for the tables, and for what was measured.")],
    data: Annotated[
        str, typer.Option(help="digits: the handwritten digits that scikit-learn ships.")
    ] = "digits",
    seeds: Annotated[int, typer.Option(help="Classifiers that are trained and supervised.")] = _DEFAULT.seeds,
    members: Annotated[int, typer.Option(help="Members of each one's ensemble.")] = _DEFAULT.members,
    passes: Annotated[int, typer.Option(help="Stochastic passes per crop.")] = _DEFAULT.passes,
    ambiguous: Annotated[
        int, typer.Option(help="Ambiguous crops to train with; half as many to test with.")
    ] = _DEFAULT.ambiguous,
    alarms: Annotated[
        float, typer.Option(help="Share of nominal crops that a threshold may refuse.")
    ] = _DEFAULT.alarms,
    soft: Annotated[
        bool,
        typer.Option("--soft", help="Train on the probabilistic labels, not on classes drawn from them."),
    ] = False,
) -> None:
    """Print and write Tables I and II of Weiss et al. 2022: what notices ambiguous, adversarial, corrupted, invalid crops.

    What was measured stays in --out; the same study goes on from there.
    """
    if data != "digits":
        raise InvalidInput(f"--data {data}: expected digits")
    settings = StudySettings(seeds, members, passes, ambiguous, alarms, drawn=not soft)
    out.mkdir(parents=True, exist_ok=True)
    result = run_study(digits(), settings, out, lambda stage: typer.echo(stage, err=True))
    text = as_markdown(result)
    with atomic_write(out / "supervisors.md", "w") as stream:
        stream.write(text)
    Console().print(Markdown(text))
    typer.echo(f"tables: {out / 'supervisors.md'}")
