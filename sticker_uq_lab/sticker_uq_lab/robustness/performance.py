# SPDX-License-Identifier: Apache-2.0
"""How well a system under robustness assessment did on a set of images (Wozniak et al., task 5, M7 to M13), and what its gate did
(shares of the images).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.accuracy import IOUS, MatchTable, coco_summary, count_matches
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.robustness.systems import SystemAnswer, act_on_detections, consequence

Weights = NDArray[np.float64]

COUNTS = ("true_positives", "false_positives", "false_negatives")
GATE_METRICS = ("wrongly_removed", "left_to_person", "missed_called_clean")
"""Shares of the images in which something other than a sticker is removed, a person is called, or a laptop with a sticker on it
is passed on as clean. Less is better.
"""
UNGATED = tuple(f"ungated_{name}" for name in ("wrongly_removed", "missed_called_clean"))
"""The same of a cell that removes every sticker it detects and asks nobody."""
_AP_COLUMNS = {"ap": slice(None), "ap50": slice(IOUS.index(0.5), IOUS.index(0.5) + 1), "ap75": slice(5, 6)}
"""Which of the IoU thresholds each kind of AP is a mean over."""


@dataclass(frozen=True)
class Judged:
    """One image: its truth, what the system said, and whether a sticker is there that it does not show."""

    truth: LabelledImage
    answer: SystemAnswer
    hidden_sticker: bool = False


class Performance:
    """Figures of images. ``match_iou``: when a detection is an object; ``decision_score``: when precision and recall count it."""

    def __init__(self, images: Sequence[Judged], match_iou: float, decision_score: float) -> None:
        if not images:
            raise InvalidInput("no images to measure performance on")
        self.images = tuple(images)
        self._iou, self._score = match_iou, decision_score

    @cached_property
    def _match_table(self) -> MatchTable:
        detections = [image.answer.detections for image in self.images]
        return MatchTable(detections, [image.truth for image in self.images])

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """True positives, false positives and false negatives in each image, (images, 3)."""
        rows = [count_matches(i.answer.detections, i.truth, self._iou, self._score) for i in self.images]
        return np.array(rows, float)

    @cached_property
    def shares(self) -> dict[str, NDArray[np.float64]]:
        """By metric of GATE_METRICS and UNGATED, 1 for every image of which it is true, (images,)."""
        rows = []
        for image in self.images:
            stickers = image.truth.boxes[image.truth.labels == ObjectClass.STICKER]
            naive = act_on_detections(image.answer.detections, self._score)
            wrong, _, missed = consequence(naive, stickers, image.hidden_sticker, self._iou)
            gated = consequence(image.answer.action or naive, stickers, image.hidden_sticker, self._iou)
            rows.append((*gated, wrong, missed))
        table = np.array(rows, float)
        return dict(zip((*GATE_METRICS, *UNGATED), table.T, strict=True))

    def value(self, metric: str, weights: Weights | None = None) -> float:
        """NaN where nothing can be measured; ``weights`` (images,): how often each image counts."""
        return self.several([metric])(weights)[0]

    def several(self, metrics: Sequence[str]) -> Callable[[Weights | None], list[float]]:
        """What gives all ``metrics`` for weights of the images, to be called often; AP is computed once for all kinds."""
        for metric in metrics:
            if metric not in ("precision", "recall", *self.shares, *_AP_COLUMNS):
                raise InvalidInput(f"performance metric {metric!r} is unknown")
        precisions = not _AP_COLUMNS.keys().isdisjoint(metrics)

        def calculate(weights: Weights | None) -> list[float]:
            row = self._match_table.average_precision(weights) if precisions else np.zeros(0)
            ratios = {"precision": 1, "recall": 2}
            return [
                float(row[_AP_COLUMNS[metric]].mean())
                if metric in _AP_COLUMNS
                else self._ratio(ratios[metric], weights)
                if metric in ratios
                else float(np.average(self.shares[metric], weights=weights))
                for metric in metrics
            ]

        return calculate

    def figures(self) -> dict[str, float]:
        """By name: counts, precision, recall, COCO's figures, the gate's shares, failures."""
        detections = [image.answer.detections for image in self.images]
        return {
            "images": float(len(self.images)),
            **dict(zip(COUNTS, self.counts.sum(axis=0).tolist(), strict=True)),
            "precision": self.value("precision"),
            "recall": self.value("recall"),
            **coco_summary(detections, [image.truth for image in self.images]),
            **{name: float(share.mean()) for name, share in self.shares.items()},
            "failures": float(sum(bool(image.answer.failure) for image in self.images)),
        }

    def _ratio(self, others: int, weights: Weights | None) -> float:
        totals = self.counts.sum(axis=0) if weights is None else weights @ self.counts
        whole = totals[0] + totals[others]
        return float(totals[0] / whole) if whole else math.nan
