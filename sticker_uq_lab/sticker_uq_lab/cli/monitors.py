# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq monitors``: misclassification monitors of single objects."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.markdown import Markdown
from rich.table import Table

from sticker_uq.calibration.panel import DEFAULT, Labelled, fit_panel
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli import option
from sticker_uq.cli.options import check_settings, field_options, output_file, output_folder, settings_options
from sticker_uq.cli.terminal import command_line, output
from sticker_uq.evaluation.metrics.quality import vectors_table
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.evaluation.reporting.document import write_tables
from sticker_uq.gate import Policy
from sticker_uq.io.coco import check_new_dataset, check_objects, read_coco, write_coco
from sticker_uq.io.files import write_file
from sticker_uq.io.share import share_folder
from sticker_uq.io.stopping import resumable
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.perception.monitors.crop_network import class_vectors, train_network
from sticker_uq.perception.monitors.folder import PanelFile
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.studies.ambiguity.pasting import pasted_scenes
from sticker_uq_lab.studies.ambiguity.raae import TEST_DELTA, generate, train_raaes
from sticker_uq_lab.studies.annotator_votes import sticker_fractions
from sticker_uq_lab.studies.monitors import classifier_study
from sticker_uq_lab.studies.monitors import material as materials
from sticker_uq_lab.studies.monitors.paper_networks import ARCHITECTURES, CONVOLUTIONAL, builder
from sticker_uq_lab.studies.monitors.task_networks import rate_table, run_tasks, sticker_class, task_report

app = typer.Typer(no_args_is_help=True, add_completion=False)
_FITTING = 2 / 3  # share of the pictures to set limits on, unless --calibration is given
_FIELDS = ("seeds", "members", "passes", "ambiguous", "delta_max", "alarms", "swapped")
_ARCHITECTURES = "|".join(ARCHITECTURES)
_MATERIALS: dict[str, Callable[[], materials.Material]] = {
    "digits": materials.digits,
    "cell": materials.cell_material,
}


@app.callback()
def _about() -> None:
    """Misclassification monitors: scores of how untrustworthy the class of one object is (S001 calls them supervisors)."""


@app.command()
@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def fit(
    settings: PerceptionSettings,
    data: Path = option(..., "COCO folder with pictures to fit on."),
    out: Path = output_folder(..., "Folder for the panel."),
    calibration: Path | None = option(
        None, "COCO folder to set the limits on. Default: a third of the pictures of --data."
    ),
    task: float | None = option(
        None,
        "Add a network for the decision whether the share of annotators who call an object a removable sticker is above this.",
    ),
    alarms: float = option(0.05, "Share of the policy's correct removals that the whole panel may reject."),
    policy: Path | None = option(
        None, "Policy that the panel is combined with; default: config/limits.yaml."
    ),
) -> None:
    """Fit monitors on the objects of a detector, and set the limits above which each objects to a removal.

    --monitors names them. The folder is the detector's parameter `panel`, and the option of `replay` and `calibrate`.
    """
    if settings.panel:
        raise InvalidInput(f"--panel {settings.panel}: expected none, because a panel is fitted")
    fitting = _read_labelled(data)
    if calibration is not None:
        calibrating = _read_labelled(calibration)
    else:
        order = np.random.default_rng(settings.seed).permutation(len(fitting))
        parts = np.split(order, [round(_FITTING * len(fitting))])
        fitting, calibrating = ([fitting[i] for i in part] for part in parts)
    perception = load_perception(settings.model_copy(update={"monitors": ""}))
    document = fit_panel(
        perception,
        fitting,
        calibrating,
        settings.votes or DEFAULT,
        out,
        Policy.load(policy or share_folder() / "config" / "limits.yaml"),
        alarms,
        task,
        {"command": command_line(), "pictures": len(fitting)},
        settings.seed,
        lambda stage: typer.echo(stage, err=True),
    )
    _print_panel(document, out)


@app.command()
@field_options("values", classifier_study.MonitorStudySettings, *_FIELDS)
def study(
    values: dict[str, Any],
    out: Path = output_folder(..., "Folder for the tables, and for what was measured."),
    data: str = option(
        "digits",
        "digits: the handwritten digits that scikit-learn ships; cell: rendered crops; a COCO folder; mnist=FOLDER or "
        "fmnist=FOLDER: the four IDX files of MNIST or Fashion-MNIST.",
    ),
    invalid: Path | None = option(
        None, "Folder of the other of both data sets, whose pictures are of no class (paper)."
    ),
    architecture: list[str] = option(
        [CONVOLUTIONAL],
        "Kind of classifier, can be repeated: the paper averages over all four.",
        metavar=_ARCHITECTURES,
    ),
) -> None:
    """Print and write Tables I and II of Weiss et al. 2022: detection of ambiguous, adversarial, corrupted, invalid crops.

    Measurements are kept in --out, from which the same study resumes.
    """
    settings = check_settings(
        classifier_study.MonitorStudySettings, {**values, "architectures": tuple(dict.fromkeys(architecture))}
    )
    material = materials.study_material() if data == "cell" else _material(data, invalid)
    out.mkdir(parents=True, exist_ok=True)
    resumable("the same call resumes", out)
    result = classifier_study.run_study(material, settings, out, lambda stage: typer.echo(stage, err=True))
    text = classifier_study.classifier_report(result)
    write_file(out / "monitors.md", text)
    output().print(Markdown(text))
    typer.echo(f"tables: {out / 'monitors.md'}")


@app.command()
def vectors(
    out: Path = output_file(..., "CSV file for the probabilities, as `quality --vectors` reads them."),
    data: str = option("digits", "As of `monitors study`."),
    architecture: str = option(CONVOLUTIONAL, "Kind of classifier.", metavar=_ARCHITECTURES),
    epochs: int | None = option(
        None, "Passes over the training crops; default: those of the material.", min=1
    ),
    seed: int = option(0, "Seed of the classifier.", min=0),
) -> None:
    """Train one classifier and write its class probabilities of the test crops: to compare the errors of two by class.

    Ullah, Fan and Wongpiromsarn, Sections V-A and V-B, compare a CNN and a ResNet.
    """
    if architecture not in ARCHITECTURES:
        raise InvalidInput(f"--architecture {architecture}: expected one of {', '.join(ARCHITECTURES)}")
    material = _material(data)
    training = material.training if epochs is None else replace(material.training, epochs=epochs)
    one_hot = np.eye(len(material.classes))[material.train_labels]
    network = train_network(builder(architecture, training.deep), material.train, one_hot, seed, training)
    table = vectors_table(material.classes, class_vectors(network, material.test), material.test_labels)
    write_file(out, table.to_csv(index=False, lineterminator="\n"))
    typer.echo(f"{len(table)} crops in {out}")


@app.command()
def ambiguous(
    data: Path = option(..., "COCO folder with logos and stickers."),
    out: Path = output_folder(..., "COCO folder to write: its pictures with ambiguous objects on them."),
    each: int = option(2, "Ambiguous objects per picture, where there is space.", min=1),
    delta_max: float = option(
        TEST_DELTA, "Highest difference of the probabilities of an object's two classes."
    ),
    seed: int = option(0, "Seed of autoencoders, objects and positions.", min=0),
) -> None:
    """Paste objects between logo and sticker, and between sticker and lid, into scenes, with probabilistic labels.

    AmbiGuess (Weiss et al. 2022) on the folder's own objects. An annotation's `probabilities` are in the order background, logo,
    sticker.
    """
    check_new_dataset(out)
    material, items = materials.coco_material(data, seed), read_coco(data)
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
    out: Path = output_folder(..., "Folder for the tables and results."),
    data: str = option("cell", "cell, or a COCO folder with logos and stickers."),
    seeds: int = option(3, "Number of seeds that every network is trained with."),
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
    write_file(out / "tasks.md", text)
    output().print(Markdown(text))
    typer.echo(f"tables: {out / 'tasks.md'}, {out / 'tasks.csv'}")


def _material(data: str, invalid: Path | None = None) -> materials.Material:
    name, equals, folder = data.partition("=")
    if equals and name in ("mnist", "fmnist"):
        return materials.mnist(Path(folder), name, invalid)
    if invalid is not None:
        raise InvalidInput(f"--invalid {invalid}: only with --data mnist=FOLDER or fmnist=FOLDER")
    if data in _MATERIALS:
        return _MATERIALS[data]()
    if not Path(data).is_dir():
        raise InvalidInput(
            f"--data {data}: expected {', '.join(_MATERIALS)}, mnist=FOLDER, fmnist=FOLDER or a COCO folder"
        )
    return materials.coco_material(Path(data))


def _read_labelled(folder: Path) -> Sequence[Labelled]:
    items = read_coco(folder)
    check_objects(items, str(folder))
    shares = sticker_fractions(folder, items)
    return [(item, shares[item.image_id]) for item in items]


def _print_panel(document: PanelFile, out: Path) -> None:
    table = Table("monitor", "limit", "refuses by itself", "ms per object")
    found = document.calibration
    for name, seat in document.monitors.items():
        table.add_row(name, f"{seat.limit:.4g}", f"{seat.refused} of {found.stickers}", f"{seat.cost_ms:.3f}")
    output().print(table)
    for words, hits, count in (
        ("right removals refused by any", found.refused, found.stickers),
        ("wrongful removals caught by any", found.caught, found.wrong),
    ):
        low, high = clopper_pearson(hits, count)
        share = f", {hits / count:.3f} ({low:.3f} to {high:.3f})" if count else ""
        typer.echo(f"{words}: {hits} of {count}{share}")
    typer.echo(f"panel: {out}")
