# SPDX-License-Identifier: Apache-2.0
"""FNR and FPR of task networks and of the probabilistic one, per threshold and as a cascade, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.statistics import Interval, area_under_roc, cluster_bootstrap
from sticker_uq.evaluation.reporting.document import Block, Table, as_markdown
from sticker_uq.lab.studies.monitors.task_networks import (
    ASK_ABOVE,
    REMOVE_ABOVE,
    THRESHOLDS,
    TaskScores,
    actions,
)
from sticker_uq.scene import FloatArray, IntArray

_RESAMPLES = 400


@dataclass(frozen=True)
class Rates:
    """One threshold: ``above``, the share of crops whose probability exceeds it; FNR (the paper calls it true negative rate) and
    FPR of both kinds of network, and how much larger the mean of FNR and FPR of the task network is (negative: it is better).

    ``auc``: mean over the seeds of how well each one's output tells the crops above from the others, whatever the threshold.
    """

    threshold: float
    above: float
    task_fnr: Interval
    probabilistic_fnr: Interval
    task_fpr: Interval
    probabilistic_fpr: Interval
    difference: Interval
    task_auc: float
    probabilistic_auc: float


def rates_at(scores: TaskScores, threshold: float) -> Rates:
    """Rates, all seeds together; 95 % intervals from resampling the pictures that the crops come
    from.
    """
    above = scores.truth > threshold
    says = (scores.task_says(threshold), scores.probabilistic_says(threshold))

    def rates(rows: IntArray) -> FloatArray:
        found = [
            _share(wrong, rows, among) for one in says for wrong, among in ((~one, above), (one, ~above))
        ]
        return np.array([*found, (found[0] + found[1] - found[2] - found[3]) / 2])

    cells = _with_interval(rates, scores.sources)
    outputs = (scores.task[:, THRESHOLDS.index(threshold)], scores.probabilistic)
    areas = [
        float(np.mean([area_under_roc(one[~above], one[above]) for one in output])) for output in outputs
    ]
    return Rates(
        threshold, float(above.mean()), cells[0], cells[2], cells[1], cells[3], cells[4], areas[0], areas[1]
    )


@dataclass(frozen=True)
class Cascade:
    """Of one kind of network, shares: ``right``, of all crops those that get the right action; ``damaged``, of what must be kept
    what is removed; ``left``, of what must be removed what is kept; ``asked``, of all; ``contradicting``, of all those that the
    network of the higher threshold puts above it and that of the lower one does not.
    """

    right: Interval
    damaged: Interval
    left: Interval
    asked: Interval
    contradicting: float


def cascades(scores: TaskScores) -> tuple[Cascade, Cascade]:
    """Their cascade, and that of the probabilistic network with two thresholds."""
    wanted = actions(scores.truth > ASK_ABOVE, scores.truth > REMOVE_ABOVE)
    return (
        _cascade(scores.task_says(ASK_ABOVE), scores.task_says(REMOVE_ABOVE), wanted, scores.sources),
        _cascade(
            scores.probabilistic_says(ASK_ABOVE),
            scores.probabilistic_says(REMOVE_ABOVE),
            wanted,
            scores.sources,
        ),
    )


def _cascade(
    ask: NDArray[np.bool_], remove: NDArray[np.bool_], wanted: IntArray, sources: IntArray
) -> Cascade:
    taken = actions(ask, remove)
    everything = np.ones(len(wanted), bool)

    def shares(rows: IntArray) -> FloatArray:
        return np.array(
            [
                _share(taken == wanted, rows, everything),
                _share(taken == 2, rows, wanted == 0),
                _share(taken == 0, rows, wanted == 2),
                _share(taken == 1, rows, everything),
            ]
        )

    right, damaged, left, asked = _with_interval(shares, sources)
    return Cascade(right, damaged, left, asked, float((remove & ~ask).mean()))


def _with_interval(statistic: Callable[[IntArray], FloatArray], sources: IntArray) -> list[Interval]:
    value = statistic(np.arange(len(sources)))
    low, high = cluster_bootstrap(statistic, sources, _RESAMPLES)
    return [Interval(float(a), float(b), float(c)) for a, b, c in zip(value, low, high, strict=True)]


def _share(hits: NDArray[np.bool_], rows: IntArray, among: NDArray[np.bool_]) -> float:
    """Share of ``hits`` (S, N) in those of ``rows`` that are ``among`` (N,), all seeds together; NaN of none."""
    chosen = rows[among[rows]]
    return float(hits[:, chosen].mean()) if len(chosen) else float("nan")


def as_csv(found: dict[str, TaskScores]) -> str:
    """The study of task networks as CSV: one line per kind of label, threshold and network."""
    lines = [
        "labels,threshold,network,share_above,fnr,fnr_low,fnr_high,fpr,fpr_low,fpr_high,auc,"
        "difference,difference_low,difference_high"
    ]
    for name, scores in found.items():
        for row in (rates_at(scores, threshold) for threshold in THRESHOLDS):
            for network in ("task", "probabilistic"):
                fnr, fpr = getattr(row, f"{network}_fnr"), getattr(row, f"{network}_fpr")
                numbers = (
                    row.above,
                    *astuple(fnr),
                    *astuple(fpr),
                    getattr(row, f"{network}_auc"),
                    *astuple(row.difference),
                )
                lines.append(
                    f"{name},{row.threshold:g},{network}," + ",".join(f"{number:.6g}" for number in numbers)
                )
    return "\n".join(lines) + "\n"


def task_report(material: str, found: dict[str, TaskScores]) -> str:
    """The study of task networks as Markdown: rates per threshold and cascades, one table of each per kind of label."""
    blocks: list[Block] = [
        f"# Task networks on {material}",
        "FNR: share of the crops above the threshold that the network puts below it (the paper calls it true negative rate); "
        "FPR: of those not above it, put above. 95 % intervals from resampling the pictures that the crops come from. "
        "Difference: mean of FNR and FPR, task network less probabilistic one; below 0 the task network is better.",
    ]
    head = [
        "t",
        "above t",
        "FNR, task",
        "FNR, probabilistic",
        "FPR, task",
        "FPR, probabilistic",
        "difference",
    ]
    for name, scores in found.items():
        rows = []
        for row in (rates_at(scores, threshold) for threshold in THRESHOLDS):
            cells = (row.task_fnr, row.probabilistic_fnr, row.task_fpr, row.probabilistic_fpr, row.difference)
            areas = (f"{area:.3f}" for area in (row.task_auc, row.probabilistic_auc))
            rows.append((f"{row.threshold:g}", f"{row.above:.2f}", *map(_cell, cells), *areas))
        shares = [
            (network, *map(_cell, (one.right, one.damaged, one.left, one.asked)), f"{one.contradicting:.3f}")
            for network, one in zip(("task", "probabilistic"), cascades(scores), strict=True)
        ]
        blocks += [
            f"## Labels: {name}",
            f"{len(scores.truth)} crops, {len(scores.task)} seeds.",
            Table([*head, "AUC, task", "AUC, probabilistic"], rows),
            f"Cascade: remove above {REMOVE_ABOVE:g}, ask above {ASK_ABOVE:g}, else keep.",
            Table(
                (
                    "network",
                    "right action",
                    "removed, must be kept",
                    "kept, must be removed",
                    "asked",
                    "contradicting",
                ),
                shares,
            ),
        ]
    return as_markdown(blocks)


def _cell(interval: Interval) -> str:
    known = np.isfinite(interval.value)
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})" if known else "n/a"
