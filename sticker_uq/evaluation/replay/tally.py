# SPDX-License-Identifier: Apache-2.0
"""What a replay keeps of every image: a few numbers, so that memory hardly grows."""

from __future__ import annotations

from array import array
from collections import Counter
from time import perf_counter

import numpy as np

from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.perception.stages import MODEL_STAGES

COURSES = ("dil", "shannon_entropy", "mutual_information", "objects")
_MOST_FAILURES = 50


class Tally:
    """Counts and numbers of a replay's images so far.

    ``objections``: objects that each monitor of the panel kept from being removed, which the caller counts;
    ``courses``: the values of each of :data:`COURSES`, image by image; ``failures``: name and reason of the first unusable
    images.
    """

    def __init__(self) -> None:
        self.images = self.failed = self.objects = self.unstable = self.removable = 0
        self.outcomes: Counter[str] = Counter()
        self.objections: Counter[str] = Counter()
        self.failures: list[tuple[str, str]] = []
        self.courses = {name: array("d") for name in COURSES}
        self._timings: dict[str, array[float]] = {}
        self._busy_ms = 0.0
        self._first_at = 0.0

    def add(self, row: Row) -> None:
        """Count the row of the replay's next image in the table of images."""
        timings = row["timings_ms"]
        if not self.images:
            self._first_at = perf_counter()
        else:
            self._busy_ms += sum(timings.get(stage, 0.0) for stage in MODEL_STAGES)
        self.images += 1
        self.objects += row["objects"]
        self.unstable += row["unstable"]
        self.removable += row["removable"]
        self.outcomes[row["outcome"]] += 1
        if row["status"] == "FAILED":
            self.failed += 1
            if len(self.failures) < _MOST_FAILURES:
                self.failures.append((row["image"], row["status_text"]))
        for name, values in self.courses.items():
            values.append(row[name])
        for stage, ms in timings.items():
            self._timings.setdefault(stage, array("d")).append(ms)

    def medians(self) -> dict[str, float]:
        return {stage: float(np.median(values)) for stage, values in self._timings.items()}

    def model_busy(self, end: float, processes: int) -> float:
        """Share of a replay's time in which the model computed, in each of ``processes`` on average; NaN for one image.

        From its first image until ``end`` (of ``perf_counter``).
        """
        seconds = (end - self._first_at) * processes
        return min(self._busy_ms * 1e-3 / seconds, 1.0) if self.images > 1 and seconds > 0 else float("nan")
