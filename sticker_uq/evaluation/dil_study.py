"""The tables of the DiL paper on abnormal scenes: what each case does to a detector, and what notices it.

Table 2 (misclassification, CL, BL, DiL, mAP), figure 4 (missed objects against Monte-Carlo dropout), figure 5 (rates over
cut-offs) and table 3 (thresholds), each for one detector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from sticker_uq.datasets.abnormal_coco import CLEAN, AbnormalImage
from sticker_uq.evaluation.accuracy import mean_average_precision
from sticker_uq.evaluation.dil_records import DIL_SIGNALS, DOUBT, MC_SIGNALS, PAPER, SceneRecord
from sticker_uq.evaluation.suspicion import mean_interval, roc_interval, share_above
from sticker_uq.localization import dynamic_threshold
from sticker_uq.scene import CLASS_COUNT, Detections, FloatArray, IntArray
from sticker_uq.uncertainty import iou_matrix

PAPER_DIL = f"dil_{PAPER}"
SCORE = "unexplained_objectness"
"""The signal that the product acts on."""
CUT_OFFS = (50, 60, 70, 80, 90, 95, 99)
"""Percentiles of the clean scenes' signal."""
MATCH_IOU = 0.5
_SIGNALS = (*DIL_SIGNALS, DOUBT, *MC_SIGNALS)

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
            for name in _SIGNALS
        ]
    )


def missed_detection(records: Records) -> pd.DataFrame:
    """Area under the ROC curve of scenes without a missed sticker against scenes with one (DiL paper, figure 4).

    One row per signal, with intervals: over all cases together, and within each case that has both.
    """
    together = [record for found in records.values() for record in found]
    groups: dict[str, Sequence[SceneRecord]] = {"all cases": together, **records}
    rows = []
    for name in _SIGNALS:
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
    """Recall, precision and F1 with the fixed and the dynamic threshold (DiL paper, table 3), a row per case and rule."""
    rows = []
    for case, found in records.items():
        for rule in ("fixed", "paper"):
            kept = []
            for record in found:
                dil = record.signals[PAPER_DIL]
                lowered = dynamic_threshold(dil, decision_threshold, alpha)
                kept.append(_above(record.detections, lowered if rule == "paper" else decision_threshold))
            hits, said, wanted = np.sum(
                [
                    (_hits(k, image), len(k), len(image.picture.boxes))
                    for k, image in zip(kept, images[case], strict=True)
                ],
                axis=0,
            )
            recall, precision = hits / max(wanted, 1), hits / max(said, 1)
            rows.append(
                {
                    "case": case,
                    "rule": rule,
                    "recall": recall,
                    "precision": precision,
                    "F1": 2 * recall * precision / max(recall + precision, 1e-9),
                }
            )
    return pd.DataFrame(rows)


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


def _hits(found: Detections, image: AbnormalImage) -> int:
    return int(_matches(found, image.picture.boxes, image.picture.labels).sum())


def _is_wrong(found: Detections, boxes: FloatArray, labels: IntArray) -> bool:
    matched = _matches(found, boxes, labels)
    return bool(not matched.all() or len(found) != matched.sum())
