# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq monitors``: misclassification monitors of single objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markdown import Markdown

from sticker_uq.cli import monitors_fit
from sticker_uq.cli.options import checked, field_options, output_folder
from sticker_uq.cli.terminal import output
from sticker_uq.io.coco import check_new_dataset, read_coco, write_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.io.stopping import resumable
from sticker_uq.lab.studies.ambiguity.pasting import pasted_scenes
from sticker_uq.lab.studies.ambiguity.raae import TEST_DELTA, generate, train_raaes
from sticker_uq.lab.studies.monitors.classifier_study import (
    MonitorStudySettings,
    classifier_report,
    run_study,
)
from sticker_uq.lab.studies.monitors.material import (
    Material,
    cell_material,
    coco_material,
    digits,
    mnist,
    study_material,
)
from sticker_uq.lab.studies.monitors.paper_networks import ARCHITECTURES, CONVOLUTIONAL
from sticker_uq.lab.studies.monitors.task_networks import rate_table, run_tasks, sticker_class, task_report
from sticker_uq.lab.table_files import write_tables
from sticker_uq.scene import InvalidInput

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command(name="fit")(monitors_fit.command)
_FIELDS = ("seeds", "members", "passes", "ambiguous", "delta_max", "alarms")
_MATERIALS: dict[str, Callable[[], Material]] = {"digits": digits, "cell": cell_material}


@app.callback()
def _about() -> None:
    """Misclassification monitors: scores of how untrustworthy the class of one object is (S001 calls them supervisors)."""


@app.command()
@field_options("values", MonitorStudySettings, *_FIELDS)
def study(
    values: dict[str, Any],
    out: Annotated[Path, output_folder("Folder for the tables, and for what was measured.")],
    data: Annotated[
        str,
        typer.Option(
            help="digits: the handwritten digits that scikit-learn ships; cell: rendered crops; a COCO folder; mnist=FOLDER or "
            "fmnist=FOLDER: the four IDX files of MNIST or Fashion-MNIST.",
        ),
    ] = "digits",
    invalid: Annotated[
        Path | None,
        typer.Option(help="Folder of the other of both data sets, whose pictures are of no class (paper)."),
    ] = None,
    architecture: Annotated[
        list[str],
        typer.Option(
            metavar="|".join(ARCHITECTURES),
            help="Kind of classifier, can be repeated: the paper averages over all four.",
        ),
    ] = [CONVOLUTIONAL],  # noqa: B006
) -> None:
    """Print and write Tables I and II of Weiss et al. 2022: detection of ambiguous, adversarial, corrupted, invalid crops.

    Measurements are kept in --out, from which the same study resumes.
    """
    settings = checked(MonitorStudySettings, {**values, "architectures": tuple(dict.fromkeys(architecture))})
    material = study_material() if data == "cell" else _material(data, invalid)
    out.mkdir(parents=True, exist_ok=True)
    resumable("the same call resumes", out)
    result = run_study(material, settings, out, lambda stage: typer.echo(stage, err=True))
    text = classifier_report(result)
    with atomic_write(out / "monitors.md", "w") as stream:
        stream.write(text)
    output().print(Markdown(text))
    typer.echo(f"tables: {out / 'monitors.md'}")


@app.command()
def ambiguous(
    data: Annotated[Path, typer.Option(help="COCO folder with logos and stickers.")],
    out: Annotated[Path, output_folder("COCO folder to write: its pictures with ambiguous objects on them.")],
    each: Annotated[
        int, typer.Option(min=1, help="Ambiguous objects per picture, where there is space.")
    ] = 2,
    delta_max: Annotated[
        float, typer.Option(help="Highest difference of the probabilities of an object's two classes.")
    ] = TEST_DELTA,
    seed: Annotated[int, typer.Option(help="Seed of autoencoders, objects and positions.")] = 0,
) -> None:
    """Paste objects between logo and sticker, and between sticker and lid, into scenes, with probabilistic labels.

    AmbiGuess (Weiss et al. 2022) on the folder's own objects. An annotation's `probabilities` are in the order background, logo,
    sticker.
    """
    check_new_dataset(out)
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
    typer.echo(f"{written} scenes in {out}")


@app.command()
def tasks(
    out: Annotated[Path, output_folder("Folder for the tables and results.")],
    data: Annotated[str, typer.Option(help="cell, or a COCO folder with logos and stickers.")] = "cell",
    seeds: Annotated[int, typer.Option(help="Number of seeds that every network is trained with.")] = 3,
) -> None:
    """Print and write FNR and FPR of networks trained on "probability of removable sticker > t" against one that estimates it.

    For t = 0.1 ... 0.9, probabilities by blur, and a cascade keep / ask / remove (Ullah, Fan and Wongpiromsarn, Section V-C, with
    everything but the labels shared).
    """
    if seeds < 1:
        raise InvalidInput(f"--seeds {seeds}: expected 1 or more")
    material = _material(data)
    sticker_class(material)  # refuses before the folder is created
    scores = run_tasks(material, seeds, progress=lambda stage: typer.echo(stage, err=True))
    rates = rate_table(scores)
    write_tables({"tasks": rates}, out)
    text = task_report(material.name, scores, rates)
    with atomic_write(out / "tasks.md", "w") as stream:
        stream.write(text)
    output().print(Markdown(text))
    typer.echo(f"tables: {out / 'tasks.md'}, {out / 'tasks.csv'}")


def _material(data: str, invalid: Path | None = None) -> Material:
    name, equals, folder = data.partition("=")
    if equals and name in ("mnist", "fmnist"):
        return mnist(Path(folder), name, invalid)
    if invalid is not None:
        raise InvalidInput(f"--invalid {invalid}: only with --data mnist=FOLDER or fmnist=FOLDER")
    if data in _MATERIALS:
        return _MATERIALS[data]()
    if not Path(data).is_dir():
        raise InvalidInput(
            f"--data {data}: expected {', '.join(_MATERIALS)}, mnist=FOLDER, fmnist=FOLDER or a COCO folder"
        )
    return coco_material(Path(data))
