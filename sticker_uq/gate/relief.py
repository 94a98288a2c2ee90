# SPDX-License-Identifier: Apache-2.0
"""The gate's second measurement: a sticker stands out of the lid and a print does not, which no picture from above shows."""

import math

import numpy as np

from sticker_uq.gate.box_overlap import Box, as_box, is_proper
from sticker_uq.gate.settings import MOST_RELIEF_MM, GateSettings, nanoseconds
from sticker_uq.gate.state import GateState, Relief
from sticker_uq.scene import ObjectVerdict, Reason


def relief_doubt(state: GateState, verdict: ObjectVerdict, settings: GateSettings) -> Reason | None:
    """Why the newest relief does not allow removing an object; None when it does, or is not needed.

    A person who approved the object has looked. Only a relief measured after the laptop came and the arm last moved counts.
    """
    relief, scene, limit = state.relief, state.scene, settings.min_relief_mm
    if limit == 0.0 or verdict.by_operator:
        return None
    oldest_ns = max(state.counts_after_ns, state.now_ns - nanoseconds(settings.max_relief_age_s))
    newest_ns = state.now_ns + nanoseconds(settings.max_clock_skew_s)
    if relief is None or scene is None or not oldest_ns < relief.stamp_ns <= newest_ns:
        return Reason("relief_missing")
    if (relief.frame_id, relief.height.shape[::-1]) != scene.source:
        return Reason("relief_elsewhere")
    height = height_mm(relief, as_box(verdict.object.box))
    if not height <= MOST_RELIEF_MM:
        return Reason("relief_unmeasured")
    return None if height >= limit else Reason("relief_flat", value=height, limit=limit)


def height_mm(relief: Relief, box: Box) -> float:
    """Median height in the middle of ``box``, half as wide and high, mm; NaN when less than half of that was measured.

    The corners of the box around a turned sticker show the bare lid.
    """
    if not is_proper(box):
        return math.nan
    x1, y1, x2, y2 = box
    width, height = (x2 - x1) / 4, (y2 - y1) / 4
    rows = slice(max(math.floor(y1 + height), 0), max(math.ceil(y2 - height), 0))
    columns = slice(max(math.floor(x1 + width), 0), max(math.ceil(x2 - width), 0))
    middle = relief.height[rows, columns]
    measured = middle[np.isfinite(middle)]
    return 1e3 * float(np.median(measured)) if 2 * measured.size > middle.size else math.nan
