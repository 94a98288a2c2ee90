"""The tables of the DiL paper on abnormal scenes: what each case does to a detector, and what notices it.

Table 2 (misclassification, CL, BL, DiL, mAP), figure 4 (missed objects against Monte-Carlo dropout), figure 5 (rates over
cut-offs) and table 3 (thresholds), each for one detector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from sticker_uq.dil import dynamic_threshold
from sticker_uq.evaluation.metrics.accuracy import mean_average_precision
from sticker_uq.evaluation.metrics.roc import mean_interval, roc_interval, share_above
from sticker_uq.lab.datasets.abnormal_coco import CLEAN, AbnormalImage
from sticker_uq.lab.studies.dil.records import (
    DIL_SIGNALS,
    DOUBT,
    INDECISION,
    MC_SIGNALS,
    MISSED_STICKER,
    NOVELTY,
    OMISSION,
    OVERLOOKED,
    PAPER,
    SUSPICION,
    SceneRecord,
)
from sticker_uq.lab.studies.dil.threshold_gains import threshold_gains
from sticker_uq.scene import CLASS_COUNT, Detections, FloatArray, IntArray, Localization, UnexplainedRegion
from sticker_uq.uncertainty import iou_matrix

PAPER_DIL = f"dil_{PAPER}"
SCORE = "unexplained_objectness"
"""The signal that the product acts on."""
CUT_OFFS = (50, 60, 70, 80, 90, 95, 99)
"""Percentiles of the clean scenes' signal."""
MATCH_IOU = 0.5

Records = Mapping[str, Sequence[SceneRecord]]
Images = Mapping[str, Sequence[AbnormalImage]]


def effects(records: Records, images: Images, decision_threshold: float) -> pd.DataFrame:
    """What each case does (DiL paper, table 2), one row per case.

    Misclassification is the share of scenes in which an object is missed, a box shows none, or a class is wrong, at
    ``decision_threshold``; CL and BL are means per pixel; the means have 95 % bootstrap intervals.
    """
    rows = []
    for case, found in records.items():
        truths = [image.picture for image in images[case]]
        wrong = [
            _is_wrong(
                _above(record.detections, decision_threshold), image.picture.boxes, image.picture.labels
            )
            for record, image in zip(found, images[case], strict=True)
        ]
        pixels = np.array([truth.width * truth.height for truth in truths], float)
        more = [name for name in (NOVELTY, SUSPICION) if name in _signals(records)]
        rows.append(
            {
                "case": case,
                "scenes": len(found),
                "misclassified": float(np.mean(wrong)),
                "scenes with a missed sticker": float(np.mean([r.missed > 0 for r in found])),
                "CL": float(np.mean(_signal(found, "complete_localization") / pixels)),
                "BL": float(np.mean(_signal(found, "background_localization") / pixels)),
                "DiL": str(mean_interval(_signal(found, PAPER_DIL))),
                "unexplained objectness": str(mean_interval(_signal(found, SCORE))),
                **{name: str(mean_interval(_signal(found, name))) for name in more},
                "mAP@0.5": mean_average_precision([r.detections for r in found], truths).map50,
            }
        )
    return pd.DataFrame(rows)


def separation(records: Records) -> pd.DataFrame:
    """Area under the ROC curve of clean scenes against those of each abnormal case, one row per signal, with intervals."""
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


def missed_detection(records: Records) -> pd.DataFrame:
    """Area under the ROC curve of scenes without a missed sticker against scenes with one (DiL paper, figure 4).

    One row per signal, with intervals: over all cases together, and within each case that has both.
    """
    together = [record for found in records.values() for record in found]
    groups: dict[str, Sequence[SceneRecord]] = {"all cases": together, **records}
    rows = []
    for name in _signals(records):
        row = {"signal": name}
        for group, found in groups.items():
            missed = np.array([record.missed > 0 for record in found])
            values = _signal(found, name)
            row[group] = str(roc_interval(values[~missed], values[missed]))
        rows.append(row)
    return pd.DataFrame(rows)


def rates(records: Records, signal: str) -> pd.DataFrame:
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


def thresholds(records: Records, images: Images, decision_threshold: float, alpha: float) -> pd.DataFrame:
    """Recall, precision, F1 and TPR with the fixed, the paper's and the regional threshold, with their gains over the fixed one.

    A row per case and rule (DiL paper, table 3); the paper's rule uses the DiL of its own saliency technique.
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
        rows += [{"case": case} | asdict(result) for result in results]
    return pd.DataFrame(rows)


def _localization(record: SceneRecord, decision_threshold: float, alpha: float) -> Localization:
    """What the record keeps of its localization, as far as thresholds go by it."""
    dil = record.signals[PAPER_DIL]
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
    every = [record.signals for found in records.values() for record in found]
    told = (
        *((NOVELTY, SUSPICION) if all(NOVELTY in signals for signals in every) else ()),
        *((OVERLOOKED, MISSED_STICKER, OMISSION) if all(OVERLOOKED in signals for signals in every) else ()),
    )
    return (*DIL_SIGNALS, DOUBT, INDECISION, *told, *MC_SIGNALS)


def _signal(found: Sequence[SceneRecord], name: str) -> FloatArray:
    return np.array([record.signal(name) for record in found])


def _above(detections: Detections, threshold: float) -> Detections:
    kept = detections.scores >= threshold
    return Detections(
        detections.boxes[kept].reshape(-1, 4), detections.probabilities[kept].reshape(-1, CLASS_COUNT)
    )


def _matches(found: Detections, boxes: FloatArray, labels: IntArray) -> FloatArray:
    """Which boxes (N,) a detection of the same class shows, the surest detections choosing first."""
    overlaps = iou_matrix(found.boxes, boxes)
    taken = np.zeros(len(boxes), bool)
    for index in np.argsort(-found.scores, kind="stable"):
        fits = np.where(~taken & (labels == found.foreground_labels[index]), overlaps[index], 0.0)
        if len(fits) and fits.max() >= MATCH_IOU:
            taken[fits.argmax()] = True
    return taken


def _is_wrong(found: Detections, boxes: FloatArray, labels: IntArray) -> bool:
    matched = _matches(found, boxes, labels)
    return bool(not matched.all() or len(found) != matched.sum())
