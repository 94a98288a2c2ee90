"""The tables of a study as Markdown: mean and standard deviation over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.lab.studies.monitors.classifier_study import SETS, StudyResult
from sticker_uq.lab.studies.monitors.monitor_attacks import EPSILON, Adaptive
from sticker_uq.lab.studies.monitors.monitor_measures import Ambiguity


def as_markdown(result: StudyResult) -> str:
    """Table I, Table II and error detection of ``result``."""
    counts = result.seeds[0].counts
    own, nominal = result.diversity
    lines = [
        f"# Monitors on {result.material}",
        "",
        f"{len(result.seeds)} seeds, mean and standard deviation. Ensembles of {result.settings.members}, "
        f"{result.settings.passes} passes. Crops: "
        + ", ".join(f"{count} {name}" for name, count in counts.items())
        + ".",
        f"Accuracy on nominal crops {_cell([s.accuracy for s in result.seeds])}, "
        f"{result.clean_accuracy:.3f} without ambiguous crops in training. "
        f"Diversity of the ambiguous crops {own:.3f}, of nominal ones {nominal:.3f}. Ambiguous crops: delta_max "
        f"{result.settings.delta_max:g}, of other autoencoders than those trained with.",
        "",
        "## Table I: how ambiguous the crops are to the classifier",
        "",
        "| crops | Top-1 | Top-2 | Top-Pair | entropy, bits |",
        "|---|---|---|---|---|",
    ]
    for name in result.seeds[0].table_1:
        rows = [seed.table_1[name] for seed in result.seeds]
        cells = [_cell([getattr(row, f.name) for row in rows]) for f in fields(Ambiguity)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Table II: AUC-ROC against nominal crops",
        "",
        f"| supervisor | {' | '.join(SETS)} |",
        "|---|" + "---|" * len(SETS),
    ]
    for name in result.seeds[0].auc:
        found = [[seed.auc[name][key] for seed in result.seeds] for key in SETS]
        lines.append(f"| {name} | " + " | ".join(_cell(values) for values in found) + " |")
    lines += [
        "",
        "## Error detection on nominal and corrupted crops",
        "",
        f"FNR: share of the wrongly classified crops below the threshold that refuses {result.settings.alarms:.0%} of the "
        "nominal ones, all seeds together, with its 95 % interval (Clopper and Pearson; crops of different seeds are the same, "
        "so it is a little too narrow). AUGRC: lower is better.",
        "",
        "| supervisor | AUGRC | FNR | ms per crop |",
        "|---|---|---|---|",
    ]
    for name in result.seeds[0].augrc:
        missed = sum(seed.missed[name][0] for seed in result.seeds)
        wrong = sum(seed.missed[name][1] for seed in result.seeds)
        low, high = clopper_pearson(missed, wrong)
        rate = missed / wrong if wrong else float("nan")
        cost = float(np.median([seed.cost_ms[name] for seed in result.seeds]))
        lines.append(
            f"| {name} | {_cell([seed.augrc[name] for seed in result.seeds])} | {rate:.2f} ({low:.2f} to {high:.2f}) "
            f"| {cost:.3f} |"
        )
    lines += [
        "",
        "## Attacks that know the supervisor",
        "",
        f"Both change no value by more than {EPSILON:g}. fooled: share of the rightly classified crops; AUC-ROC of the "
        "supervisor on what fooled the classifier.",
        "",
        "| supervisor | fooled | AUC | fooled, knowing it | AUC, knowing it |",
        "|---|---|---|---|---|",
    ]
    for name in result.seeds[0].adaptive:
        known = [seed.adaptive[name] for seed in result.seeds]
        cells = [_cell([getattr(row, f.name) for row in known]) for f in fields(Adaptive)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None and np.isfinite(value)]
    if not numbers:
        return "n/a"
    if len(numbers) == 1:
        return f"{numbers[0]:.3f}"
    return f"{np.mean(numbers):.3f} ± {np.std(numbers, ddof=1):.3f}"
