# SPDX-License-Identifier: Apache-2.0
"""The tables of a study of monitors as Markdown: mean and standard deviation over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.lab.studies.monitors.classifier_study import SETS, StudyResult
from sticker_uq.lab.studies.monitors.monitor_measures import Ambiguity


def classifier_report(result: StudyResult) -> str:
    """Table I, Table II and error detection of a monitor study's ``result`` as Markdown."""
    seeds, settings = result.seeds, result.settings
    own, nominal = result.diversity
    counts = ", ".join(f"{count} {name}" for name, count in seeds[0].counts.items())
    return as_markdown(
        [
            f"# Monitors on {result.material}",
            f"{len(seeds)} seeds, mean and standard deviation. Ensembles of {settings.members}, {settings.passes} passes. "
            f"Crops: {counts}. Accuracy on nominal crops {_cell([s.accuracy for s in seeds])}, {result.clean_accuracy:.3f} "
            f"without ambiguous crops in training. Diversity of the ambiguous crops {own:.3f}, of nominal ones {nominal:.3f}. "
            f"Ambiguous crops: delta_max {settings.delta_max:g}, of other autoencoders than those trained with.",
            "## Table I: how ambiguous the crops are to the classifier",
            Table(
                ("crops", "Top-1", "Top-2", "Top-Pair", "entropy, bits"),
                [
                    (name, *_cells(Ambiguity, [seed.table_1[name] for seed in seeds]))
                    for name in seeds[0].table_1
                ],
            ),
            "## Table II: AUC-ROC against nominal crops",
            Table(
                ("monitor", *SETS),
                [
                    (name, *(_cell([seed.auc[name][key] for seed in seeds]) for key in SETS))
                    for name in seeds[0].auc
                ],
            ),
            "## Error detection on nominal and corrupted crops",
            f"FNR: share of the wrongly classified crops below the threshold that refuses {settings.alarms:.0%} of the nominal "
            "ones, all seeds together, with its 95 % interval (Clopper and Pearson; crops of different seeds are the same, so it "
            "is a little too narrow). AUGRC: lower is better.",
            Table(
                ("monitor", "AUGRC", "FNR", "ms per crop"),
                [
                    (
                        name,
                        _cell([seed.augrc[name] for seed in seeds]),
                        missed_rate(*np.sum([seed.missed[name] for seed in seeds], axis=0).tolist()),
                        f"{np.median([seed.cost_ms[name] for seed in seeds]):.3f}",
                    )
                    for name in seeds[0].augrc
                ],
            ),
        ]
    )


def missed_rate(missed: int, wrong: int) -> str:
    """The share of ``wrong`` crops or objects that were ``missed``, with its Clopper-Pearson interval."""
    low, high = clopper_pearson(missed, wrong)
    return f"{missed / wrong if wrong else float('nan'):.2f} ({low:.2f} to {high:.2f})"


def _cells(kind: type[Any], rows: Sequence[Any]) -> list[str]:
    return [_cell([getattr(row, field.name) for row in rows]) for field in fields(kind)]


def _cell(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None and np.isfinite(value)]
    if not numbers:
        return "n/a"
    if len(numbers) == 1:
        return f"{numbers[0]:.3f}"
    return f"{np.mean(numbers):.3f} ± {np.std(numbers, ddof=1):.3f}"
