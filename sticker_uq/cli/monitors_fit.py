# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq monitors fit``: fits a panel of monitors for the detector's parameter ``panel``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from sticker_uq.calibration.panel import DEFAULT, Labelled, fit_panel
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli.options import output_folder, settings_options
from sticker_uq.cli.terminal import output
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate import Policy
from sticker_uq.io.annotator_votes import sticker_fractions
from sticker_uq.io.coco import check_objects, read_coco
from sticker_uq.io.share import share_folder
from sticker_uq.monitors.folder import PanelFile
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput

_FITTING = 2 / 3  # share of the pictures to set limits on, unless --calibration is given


@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def command(
    settings: PerceptionSettings,
    data: Annotated[Path, typer.Option(help="COCO folder with pictures to fit on.")],
    out: Annotated[Path, output_folder("Folder for the panel.")],
    calibration: Annotated[
        Path | None,
        typer.Option(help="COCO folder to set the limits on. Default: a third of the pictures of --data."),
    ] = None,
    task: Annotated[
        float | None,
        typer.Option(
            help="Add a network for the decision whether the share of annotators who call an object a removable sticker is "
            "above this."
        ),
    ] = None,
    alarms: Annotated[
        float, typer.Option(help="Share of the policy's correct removals that the whole panel may reject.")
    ] = 0.05,
    policy: Annotated[
        Path | None, typer.Option(help="Policy that the panel is combined with; default: the packaged one.")
    ] = None,
) -> None:
    """Fit monitors on the objects of a detector, and set the limits above which each objects to a removal.

    --monitors names them. The folder is the detector's parameter `panel`, and the option of `replay` and `calibrate`.
    """
    if settings.panel:
        raise InvalidInput(f"--panel {settings.panel}: expected none, because a panel is fitted")
    fitting: Sequence[Labelled] = _labelled(data)
    calibrating: Sequence[Labelled]
    if calibration is None:
        order = np.random.default_rng(settings.seed).permutation(len(fitting))
        cut = round(_FITTING * len(fitting))
        everything = fitting
        fitting, calibrating = ([everything[i] for i in part] for part in (order[:cut], order[cut:]))
    else:
        calibrating = _labelled(calibration)
    perception = load_perception(settings.model_copy(update={"monitors": ""}))
    document = fit_panel(
        perception,
        fitting,
        calibrating,
        settings.votes or DEFAULT,
        out,
        Policy.load(policy or share_folder() / "config" / "policy.yaml"),
        alarms,
        task,
        {"command": shlex.join(["sticker-uq", *sys.argv[1:]]), "pictures": len(fitting)},
        settings.seed,
        lambda stage: typer.echo(stage, err=True),
    )
    _print(document, out)


def _labelled(folder: Path) -> Sequence[Labelled]:
    items = read_coco(folder)
    check_objects(items, str(folder))
    shares = sticker_fractions(folder, items)
    return [(item, shares[item.image_id]) for item in items]


def _print(document: PanelFile, out: Path) -> None:
    table = Table("monitor", "limit", "refuses by itself", "ms per object")
    found = document.calibration
    for name, seat in document.monitors.items():
        table.add_row(name, f"{seat.limit:.4g}", f"{seat.refused} of {found.stickers}", f"{seat.cost_ms:.3f}")
    output().print(table)
    for words, hits, count in (
        ("right removals refused by any", found.refused, found.stickers),
        ("wrong removals caught by any", found.caught, found.wrong),
    ):
        low, high = clopper_pearson(hits, count)
        share = f", {hits / count:.3f} ({low:.3f} to {high:.3f})" if count else ""
        typer.echo(f"{words}: {hits} of {count}{share}")
    typer.echo(f"panel: {out}")
