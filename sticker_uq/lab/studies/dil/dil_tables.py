# SPDX-License-Identifier: Apache-2.0
"""The tables of the DiL study on abnormal scenes: what each case does to a detector, and what notices it.

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
from sticker_uq.evaluation.metrics.matching import match_classes
from sticker_uq.evaluation.metrics.statistics import mean_interval, roc_interval, share_above
from sticker_uq.io.coco import LabelledImage
from sticker_uq.lab.datasets.abnormal_coco import CLEAN, AbnormalImage
from sticker_uq.lab.studies.dil.scene_records import (
    ANOMALY_SCORE,
    BACKGROUND_NOVELTY,
    DETERMINISTIC_UNCERTAINTY,
    DIL_SIGNALS,
    MC_SIGNALS,
    MISSED_STICKER_PROBABILITY,
    MISSED_STICKER_SCORE,
    NOVELTY,
    PAPER,
    SUMMED_ENTROPY,
    SceneRecord,
)
from sticker_uq.lab.studies.dil.threshold_gains import threshold_gains
from sticker_uq.scene import CLASS_COUNT, Detections, FloatArray, Localization, UnexplainedRegion

PAPER_DIL = f"dil_{PAPER}"
SCORE = "unexplained_objectness"
"""The signal that the product acts on."""
CUT_OFFS = (50, 60, 70, 80, 90, 95, 99)
"""Percentiles of the clean scenes' signal."""

Records = Mapping[str, Sequence[SceneRecord]]
Images = Mapping[str, Sequence[AbnormalImage]]


def case_effects(records: Records, images: Images, decision_threshold: float) -> pd.DataFrame:
    """What each abnormal case does to a detector (DiL paper, table 2), one row per case.

    Misclassification is the share of scenes in which an object is missed, a box shows none, or a class is wrong, at
    ``decision_threshold``; CL and BL are means per pixel; the means have 95 % bootstrap intervals.
    """
    rows = []
    for case, found in records.items():
        truths = [image.picture for image in images[case]]
        wrong = [
            _is_wrong(_above(record.detections, decision_threshold), truth)
            for record, truth in zip(found, truths, strict=True)
        ]
        pixels = np.array([truth.width * truth.height for truth in truths], float)
        more = [name for name in (NOVELTY, ANOMALY_SCORE) if name in _signals(records)]
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
        *((NOVELTY, ANOMALY_SCORE) if all(NOVELTY in signals for signals in every) else ()),
        *(
            (BACKGROUND_NOVELTY, MISSED_STICKER_PROBABILITY, MISSED_STICKER_SCORE)
            if all(BACKGROUND_NOVELTY in signals for signals in every)
            else ()
        ),
    )
    return (*DIL_SIGNALS, DETERMINISTIC_UNCERTAINTY, SUMMED_ENTROPY, *told, *MC_SIGNALS)


def _signal(found: Sequence[SceneRecord], name: str) -> FloatArray:
    return np.array([record.signal(name) for record in found])


def _above(detections: Detections, threshold: float) -> Detections:
    kept = detections.scores >= threshold
    return Detections(
        detections.boxes[kept].reshape(-1, 4), detections.probabilities[kept].reshape(-1, CLASS_COUNT)
    )


def _is_wrong(found: Detections, truth: LabelledImage) -> bool:
    """Whether an object is missed, or a detection shows none of its class."""
    hits = (match_classes(found, truth)[0] >= 0).sum()
    return bool(hits != len(truth.boxes) or hits != len(found))
