# SPDX-License-Identifier: Apache-2.0
"""The DiL study as tables and pages, and what a threshold on DiL gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from markupsafe import Markup

from sticker_uq.evaluation.metrics.accuracy import mean_average_precision
from sticker_uq.evaluation.metrics.matching import match_classes
from sticker_uq.evaluation.metrics.statistics import mean_interval, roc_interval, share_above
from sticker_uq.evaluation.reporting.document import Block, Table, as_html, as_markdown, svg, write_tables
from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.files import write_file
from sticker_uq.perception.dil import dynamic_threshold
from sticker_uq.perception.dil.score import above_dil_threshold
from sticker_uq.perception.dil.settings import LocalizationSettings, ThresholdRule
from sticker_uq.scene import Detections, FloatArray, InvalidInput, Localization, UnexplainedRegion
from sticker_uq_lab.datasets.abnormal import CLEAN, AbnormalImage
from sticker_uq_lab.studies.dil import scene_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DEFAULTS = LocalizationSettings()


def threshold_gains(
    detections: Sequence[Detections],
    localizations: Sequence[Localization | None],
    truths: Sequence[LabelledImage],
    decision_threshold: float = _DEFAULTS.decision_threshold,
    alpha: float = _DEFAULTS.alpha,
) -> list[dict[str, Any]]:
    """Detections against ground truth, a row for each threshold rule, the fixed one first (DiL paper, Table 3, for one case and
    one model).

    ``detections``: those without dropout, from the score floor on. ``recall``, ``precision``, ``f1``: over all objects of all
    images, a detection being right when its class is and its IoU is at least 0.5; ``tpr``: the mean over images with objects of
    the part found; ``..._gain``: relative to the fixed threshold, 0.1 is 10 % more. NaN where there is nothing to measure on.
    """
    if not len(detections) == len(localizations) == len(truths):
        raise InvalidInput(
            f"{len(detections)} detections, {len(localizations)} localizations and {len(truths)} labelled images, expected "
            "one of each for every image"
        )
    rows: list[dict[str, Any]] = []
    for rule in get_args(ThresholdRule):
        found = np.array(
            [
                _counts(above_dil_threshold(d, where, rule, decision_threshold, alpha), truth)
                for d, where, truth in zip(detections, localizations, truths, strict=True)
            ],
            np.float64,
        ).reshape(-1, 3)
        values = dict(zip(("recall", "precision", "f1", "tpr"), _figures(*found.T), strict=True))
        first = rows[0] if rows else values
        gains = {f"{name}_gain": _ratio(v - first[name], first[name]) for name, v in values.items()}
        rows.append({"rule": rule, **values, **gains})
    return rows


def _figures(hits: np.ndarray, predicted: np.ndarray, objects: np.ndarray) -> tuple[float, ...]:
    recall = _ratio(hits.sum(), objects.sum())
    precision = _ratio(hits.sum(), predicted.sum())
    with_objects = objects > 0
    tpr = float((hits[with_objects] / objects[with_objects]).mean()) if with_objects.any() else float("nan")
    return recall, precision, _ratio(2.0 * hits.sum(), predicted.sum() + objects.sum()), tpr


def _counts(found: Detections, truth: LabelledImage) -> tuple[int, int, int]:
    hits = int((match_classes(found, truth)[0] >= 0).sum())
    return hits, len(found), len(truth.labels)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")


PAPER_DIL = f"dil_{scene_records.PAPER}"
THRESHOLD_DIL = "dil_gradcam++"
"""Whose DiL lowers the dynamic threshold (DiL paper, table 3)."""
SCORE = "unexplained_objectness"
"""The signal that the product acts on."""
CUT_OFFS = (50, 60, 70, 80, 90, 95, 99)
"""Percentiles of the clean scenes' signal."""

Records = Mapping[str, Sequence[scene_records.SceneRecord]]
Images = Mapping[str, Sequence[AbnormalImage]]


def case_effects(records: Records, images: Images, decision_threshold: float) -> pd.DataFrame:
    """What each abnormal case does to a detector (DiL paper, table 2), one row per case.

    Misclassification is the share of scenes in which an object is missed, a box shows none, or a class is wrong, at
    ``decision_threshold``; CL and BL are means per pixel; the means have 95 % bootstrap intervals.
    """
    rows = []
    for case, found in records.items():
        truths = [image.picture for image in images[case]]
        wrong = []  # an object is missed, or a detection shows none of its class
        for record, truth in zip(found, truths, strict=True):
            kept = above_dil_threshold(record.detections, None, "fixed", decision_threshold)
            wrong.append(len(set(_counts(kept, truth))) > 1)
        pixels = np.array([truth.width * truth.height for truth in truths], float)
        shown = {"DiL": PAPER_DIL, "unexplained objectness": SCORE}
        if scene_records.NOVELTY in _signals(records):
            shown[scene_records.NOVELTY] = scene_records.NOVELTY
        rows.append(
            {
                "case": case,
                "scenes": len(found),
                "misclassified": float(np.mean(wrong)),
                "scenes with a missed sticker": float(np.mean([r.missed > 0 for r in found])),
                "CL": float(np.mean(_signal(found, "complete_localization") / pixels)),
                "BL": float(np.mean(_signal(found, "background_localization") / pixels)),
                **{title: str(mean_interval(_signal(found, name))) for title, name in shown.items()},
                "mAP@0.5": mean_average_precision([r.detections for r in found], truths).map50,
            }
        )
    return pd.DataFrame(rows)


def case_separation(records: Records) -> pd.DataFrame:
    """Area under the ROC curve of clean scenes against each abnormal case, one row per signal, with intervals."""
    clean = records[CLEAN]
    return pd.DataFrame(
        [
            {"signal": name}
            | {
                case: str(roc_interval(_signal(clean, name), _signal(found, name)))
                for case, found in records.items()
                if case != CLEAN
            }
            for name in _signals(records)
        ]
    )


def missed_sticker_separation(records: Records) -> pd.DataFrame:
    """Area under the ROC curve of scenes without a missed sticker against scenes with one (DiL paper, figure 4).

    One row per signal, with intervals: over all cases together, and within each case that has both.
    """
    together = [record for found in records.values() for record in found]
    groups: dict[str, Sequence[scene_records.SceneRecord]] = {"all cases": together, **records}
    rows = []
    for name in _signals(records):
        row = {"signal": name}
        for group, found in groups.items():
            missed = np.array([record.missed > 0 for record in found])
            values = _signal(found, name)
            row[group] = str(roc_interval(values[~missed], values[missed]))
        rows.append(row)
    return pd.DataFrame(rows)


def detection_rates(records: Records, signal: str) -> pd.DataFrame:
    """Detection of abnormal scenes with ``signal`` above percentiles of clean ones (DiL paper, figure 5), a row per cut-off.

    The cut-offs come from every other clean scene; TNR and FPR are those of the rest.
    """
    clean = _signal(records[CLEAN], signal)
    chosen, rest = clean[::2], clean[1::2]
    rows = []
    for percentile in CUT_OFFS:
        cut_off = float(np.percentile(chosen, percentile))
        false_positive = share_above(rest, cut_off)
        row = {"percentile": percentile, "cut-off": cut_off, "TNR": 1 - false_positive, "FPR": false_positive}
        for case, found in records.items():
            if case != CLEAN:
                row[f"TPR {case}"] = share_above(_signal(found, signal), cut_off)
                row[f"FNR {case}"] = 1 - row[f"TPR {case}"]
        rows.append(row)
    return pd.DataFrame(rows)


def threshold_table(
    records: Records, images: Images, decision_threshold: float, alpha: float
) -> pd.DataFrame:
    """Recall, precision, F1, TPR with the fixed, the paper's and the regional threshold, gains over the fixed one.

    A row per case and rule (DiL paper, table 3); the paper's rule uses DiL of Grad-CAM++, as the paper.
    """
    rows = []
    for case, found in records.items():
        results = threshold_gains(
            [record.detections for record in found],
            [_localization(record, decision_threshold, alpha) for record in found],
            [image.picture for image in images[case]],
            decision_threshold,
            alpha,
        )
        rows += [{"case": case} | result for result in results]
    return pd.DataFrame(rows)


def _localization(record: scene_records.SceneRecord, decision_threshold: float, alpha: float) -> Localization:
    """What the record keeps of its localization, as far as thresholds go by it."""
    dil = record.signals[THRESHOLD_DIL]
    nowhere = float("nan")
    return Localization(
        complete_localization=record.signals["complete_localization"],
        background_localization=record.signals["background_localization"],
        dil=dil,
        decision_threshold=dynamic_threshold(dil, decision_threshold, alpha),
        unexplained=tuple(
            UnexplainedRegion(np.asarray(box, np.float32), nowhere, nowhere) for box in record.regions
        ),
    )


def _signals(records: Records) -> tuple[str, ...]:
    known = [record.signals.keys() for found in records.values() for record in found]
    told = (
        name
        for name in (
            scene_records.NOVELTY,
            scene_records.MISSED_STICKER_PROBABILITY,
            *scene_records.ENSEMBLE_SIGNALS,
            *scene_records.BAYES_OD_SIGNALS,
        )
        if all(name in names for names in known)
    )
    return (*scene_records.DIL_SIGNALS, *told, *scene_records.MC_SIGNALS)


def _signal(found: Sequence[scene_records.SceneRecord], name: str) -> FloatArray:
    return np.array([record.signals[name] for record in found])


def box_plot(records: Records) -> Markup:
    """DiL of the scenes of every case, by saliency technique: median, quartiles, and 1.5 times their distance."""
    names = [name for name in scene_records.DIL_SIGNALS if name.startswith("dil_")]

    def draw(figure: Figure) -> None:
        for place, name in enumerate(names, 1):
            axes = figure.add_subplot(1, len(names), place, title=name.removeprefix("dil_"), ylim=(0, 1))
            axes.boxplot([_signal(found, name) for found in records.values()], tick_labels=list(records))
            axes.tick_params(axis="x", rotation=90)

    return svg(draw, 3.0 * len(names), 4.0, "DiL by case")


Tables = Mapping[str, Mapping[str, pd.DataFrame]]
"""By the detector's name, by the table's title."""


def write_study(study: Tables, out: Path, charts: Mapping[str, Markup] | None = None) -> list[Path]:
    """Write `study.md`, `study.html` and a CSV file per detector and table to ``out``; returns the files.

    ``charts``: of DiL, by the detector's name, for the page.
    """
    title = "Distinctive localization on abnormal scenes"
    drawn: list[Block] = [
        part for name, chart in (charts or {}).items() for part in (f"## DiL of {name}", chart)
    ]
    page = as_html(
        title, [f"# {title}", "Brackets are 95 % bootstrap intervals over scenes.", *drawn, *blocks(study)]
    )
    texts = {"study.md": as_markdown(blocks(study)), "study.html": page}
    for name, text in texts.items():
        write_file(out / name, text)
    tables = {
        f"{detector}_{title}".lower().replace(" ", "-").replace(",", "").replace("/", "-"): table
        for detector, found in study.items()
        for title, table in found.items()
    }
    write_tables(tables, out)
    return [out / name for name in (*texts, *(f"{name}.csv" for name in tables))]


def blocks(study: Tables) -> list[Block]:
    found: list[Block] = []
    for detector, tables in study.items():
        found.append(f"## {detector}")
        for title, table in tables.items():
            rows = [list(map(figure, row)) for row in table.itertuples(index=False)]
            found += [f"### {title}", Table(list(map(str, table.columns)), rows)]
    return found


def figure(value: object) -> str:
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.3g}" if 0 < abs(value) < 0.001 else f"{value:.3f}"
    return str(value).replace("_", " ")
