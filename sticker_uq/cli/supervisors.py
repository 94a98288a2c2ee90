"""``sticker-uq supervisors``: scores of how little one object can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markdown import Markdown

from sticker_uq.ambiguity.pasting import pasted_scenes
from sticker_uq.ambiguity.raae import train_raaes
from sticker_uq.ambiguity.sampling import TEST_DELTA, diversity, generate
from sticker_uq.datasets.coco import read_coco, write_coco
from sticker_uq.datasets.files import atomic_write
from sticker_uq.scene import InvalidInput
from sticker_uq.studies.cell import cell_material, coco_material
from sticker_uq.studies.digits import digits
from sticker_uq.studies.material import Material
from sticker_uq.studies.report import as_markdown
from sticker_uq.studies.supervisors import StudySettings, run_study

app = typer.Typer(no_args_is_help=True, add_completion=False)
_DEFAULT = StudySettings()
_MATERIALS: dict[str, Callable[[], Material]] = {"digits": digits, "cell": cell_material}


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
    settings = StudySettings(seeds, members, passes, ambiguous, alarms, drawn=not soft)
    out.mkdir(parents=True, exist_ok=True)
    result = run_study(_material(data), settings, out, lambda stage: typer.echo(stage, err=True))
    text = as_markdown(result)
    with atomic_write(out / "supervisors.md", "w") as stream:
        stream.write(text)
    Console().print(Markdown(text))
    typer.echo(f"tables: {out / 'supervisors.md'}")


@app.command()
def ambiguous(
    data: Annotated[Path, typer.Option(help="COCO folder with logos and stickers.")],
    out: Annotated[
        Path, typer.Option(help="COCO folder to write: its pictures with ambiguous objects on them.")
    ],
    each: Annotated[
        int, typer.Option(help="Ambiguous objects per picture, where there is room for them.")
    ] = 2,
    delta_max: Annotated[
        float, typer.Option(help="Largest difference of the probabilities of an object's two classes.")
    ] = TEST_DELTA,
    seed: Annotated[int, typer.Option(help="Of autoencoders, objects and places.")] = 0,
) -> None:
    """Paste objects between logo and sticker, and between sticker and lid, into scenes, with probabilistic labels.

    AmbiGuess (Weiss et al. 2022) on the folder's own objects. An annotation's `probabilities` are in the order background, logo,
    sticker.
    """
    if each < 1:
        raise InvalidInput(f"--each {each}: expected 1 or more")
    material, items = coco_material(data, seed), read_coco(data)
    crops = np.concatenate([material.train, material.test])
    labels = np.concatenate([material.train_labels, material.test_labels])
    typer.echo("autoencoders", err=True)
    raaes = train_raaes(crops, labels, material.pairs, material.raae, seed)
    made = generate(raaes, each * len(items), delta_max, seed)
    written = write_coco(
        out,
        pasted_scenes(items, made, each, seed),
        description="Scenes with ambiguous objects, probabilistic labels",
    )
    typer.echo(
        f"{written} scenes in {out}; diversity {diversity(made.images):.3f}, of the folder's own {diversity(crops):.3f}"
    )


def _material(data: str) -> Material:
    if data in _MATERIALS:
        return _MATERIALS[data]()
    if not Path(data).is_dir():
        raise InvalidInput(f"--data {data}: expected {', '.join(_MATERIALS)} or a COCO folder")
    return coco_material(Path(data))
