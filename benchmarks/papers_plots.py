# SPDX-License-Identifier: Apache-2.0
"""What the papers plot, of the values that they print and of ours, as SVG files; for ``python -m benchmarks.papers --plots``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import papers
from benchmarks.papers_robustness import aberration_distances
from benchmarks.papers_statistics import analysed
from sticker_uq.evaluation.reporting.document import legend_below, svg
from sticker_uq.io.files import write_file
from sticker_uq_lab.robustness.spec import preset
from sticker_uq_lab.studies.detectors.measures import UNCERTAINTY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Printed = dict[str, Any]
Values = Sequence[float | None]


def _paired(axes: Axes, names: Sequence[str], columns: dict[str, Values]) -> None:
    """A row for each of ``names``, with a point for each of ``columns``; None is no point."""
    for number, (label, values) in enumerate(columns.items()):
        axes.plot(np.array(values, float), range(len(names)), "ox^s"[number], label=label)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def correlations(printed: Printed, figure: Figure) -> None:
    """S000, Table 4: Spearman's correlation of mAP with each uncertainty, by model."""
    found = analysed().correlations.set_index(["model", "measure"])["rho"]
    table = printed["lu"]["table_4"]
    for place, measure in enumerate(UNCERTAINTY, 1):
        axes = figure.add_subplot(1, len(UNCERTAINTY), place, title=measure.short, xlim=(-0.75, 0.75))
        here = [found.get((model, measure.name)) for model in table]
        _paired(
            axes,
            list(table),
            {"published, pooled": [row[place - 1] for row in table.values()], "dalleImg at 0.2": here},
        )
        if place > 1:
            axes.set_yticklabels([])
    legend_below(figure, axes)


def supervisors(printed: Printed, figure: Figure) -> None:
    """S001, Table II: AUC-ROC of every monitor, by kind of unusual input."""
    runs = {
        name: papers.areas(printed, name)
        for name in papers.DIGITS
        if papers.newest(*papers.DIGITS[name], "monitor")
    }
    monitors = list(printed["weiss"]["table_2"])
    for place, kind in enumerate(papers.SETS):
        axes = figure.add_subplot(1, len(papers.SETS), place + 1, title=kind, xlim=(0, 1.02))
        columns = {name: [cells[place][1] for cells in areas.values()] for name, areas in runs.items()}
        _paired(
            axes,
            monitors,
            {"paper, MNIST": [cells[place] for cells in printed["weiss"]["table_2"].values()], **columns},
        )
        if place:
            axes.set_yticklabels([])
    legend_below(figure, axes, 3)


def localization(printed: Printed, figure: Figure) -> None:
    """S002, Table 2: mean DiL by case, with 95 % intervals of ours. Box plots of all scenes are in the report of `dil study`."""
    axes = figure.add_subplot(xlabel="DiL", xlim=(0, 1))
    for number, (name, where) in enumerate(papers.studied().items()):
        texts = papers.by_case(where, ("case",), "DiL")
        for row, case in enumerate(papers.CASES):
            if case in texts:
                mean, low, high = (float(part.strip("[],")) for part in texts[case].split())
                bars = [[mean - low], [high - mean]]
                label = name if row == 0 else None
                axes.errorbar(mean, row + 0.15 * number, xerr=bars, fmt="o", color=f"C{number}", label=label)
    coco = (
        "clean",
        "unrealistic occlusion",
        "realistic occlusion",
        "out of distribution",
        "adversarial patch",
    )
    table = printed["giloni"]["table_2"]
    published = {
        kind: [table[kind][coco.index(use)] for use, _ in papers.CASES.values()]
        for kind in ("one-stage", "two-stage")
    }
    for kind, marker in zip(published, "x+", strict=True):
        axes.plot(
            published[kind], range(len(papers.CASES)), marker, color="C4", label=f"paper, {kind}, COCO", ls=""
        )
    axes.set_yticks(range(len(papers.CASES)), list(papers.CASES))
    axes.invert_yaxis()
    legend_below(figure, axes, 3)


def robustness(printed: Printed, figure: Figure) -> None:
    """S004, boxes 5 to 7: distance over the strength of a poor lens; the changes of MDS against what epsilon(d) allows."""
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    strengths, *distances = zip(*aberration_distances(printed), strict=True)
    for label, values in zip(("paper, roads", "here, rendered laptops"), distances, strict=True):
        left.plot(strengths, values, "o-", label=label)
    left.set(xlabel="chromatic aberration (here: %)", ylabel="1 - SSIM")
    left.legend()
    spec, at = preset("medical-diagnosis"), printed["wozniak"]["box_7"]["distance"]
    metrics = printed["wozniak"]["box_5"]
    d = np.linspace(0, 0.5, 501)
    right.plot(d, [spec.epsilon(next(iter(metrics)), one) for one in d], label="epsilon(d)")
    for metric, (source, target) in metrics.items():
        right.plot(at, abs(target - source), "o", label=metric)
    right.set(xlabel="d = 1 - CW-SSIM", ylabel="change of performance")
    right.legend()


PLOTS: dict[str, tuple[Callable[[Printed, Figure], None], float, float]] = {
    "S000": (correlations, 14, 3.4),
    "S001": (supervisors, 14, 4.4),
    "S002": (localization, 8, 4.4),
    "S004": (robustness, 10, 3.8),
}
"""By paper: what draws, and the size in inches. S003 prints charts of errors by class, which `quality` draws."""


def plot(printed: Printed, paper: str, folder: Path) -> Path | None:
    """Write the plot of ``paper`` to ``folder``; None where it has none."""
    if paper not in PLOTS:
        return None
    draw, width, height = PLOTS[paper]
    file = folder / f"{paper}.svg"
    label = " ".join(str(draw.__doc__).split())
    folder.mkdir(parents=True, exist_ok=True)
    write_file(file, str(svg(lambda figure: draw(printed, figure), width, height, label)))
    return file
