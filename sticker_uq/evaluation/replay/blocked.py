# SPDX-License-Identifier: Apache-2.0
"""Replay's count of which limits of the policy kept how many objects and scenes from being released, and by how much."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.messages import MEASURES, text_of
from sticker_uq.scene import Outcome, Reason, SceneDecision, Verdict

LIMIT_SCHEMA = pa.schema(
    [
        ("about", pa.string()),
        ("reason", pa.string()),
        ("subject", pa.string()),
        ("name", pa.string()),
        ("limit", pa.float64()),
        ("blocked", pa.int64()),
        ("alone", pa.int64()),
        ("value_p10", pa.float64()),
        ("value_median", pa.float64()),
        ("value_p90", pa.float64()),
    ]
)
"""One row per reason why an "object" or a "scene" was not released: code and subject of the reason; ``name`` in words; the limit
of the policy; how many it ``blocked``, and how many of these nothing else did; 10th percentile, median and 90th percentile of
what was measured on them, in the unit of the limit, NaN where the reason has no value.
"""


_DETECTOR = (
    "the detector is not sure enough: train it on more pictures like these (`sticker-uq dataset suggest` names the most useful), "
    "longer, or take a larger model; a limit that is only set looser releases what is wrong, too"
)
_CALIBRATED = (
    "this limit comes with the calibration: calibrate a policy, if this one has no guarantee; more laptops to calibrate on make "
    "it looser, a higher --alpha accepts more mistakes, and a better detector stays below it more often"
)
_NOVELTY = (
    "the novelty network does not know this: train it on pictures like these (`sticker-uq dil learn`); if they are no "
    "laptops of this cell, the limit is right"
)
_MISSED = "label what was missed; where nothing was, let detector and novelty network learn from such lids"
_ADVICE = {
    "no_novelty_network": "train a novelty network (`sticker-uq dil learn`), from more pictures if it is too weak",
    "unfamiliar_scene": "unlike the scenes of the calibration: restore light and camera, or calibrate with such scenes, too",
    "missed_place": _MISSED,
    "novel_place": _NOVELTY,
    "monitor_objects": "a monitor of the panel objects: see its score, and fit the panel to these weights and pictures",
    "perception_failed": "the images could not be read: their rows say why",
    **dict.fromkeys(("risk", "left_probability", "dil", "background_saliency", "saliency"), _CALIBRATED),
    **dict.fromkeys(("novelty", "scene_distance", "object_novelty"), _NOVELTY),
    "missed_sticker_probability": _MISSED,
    "unexplained_objectness": _MISSED,
}
"""What to do about a reason, by its code or its subject; about all others, what the detector is unsure of: ``_DETECTOR``."""


@dataclass
class _Reason:
    name: str
    limit: float
    blocked: int = 0
    alone: int = 0
    values: array[float] = field(default_factory=lambda: array("d"))


class BlockedBy:
    """Replay's counts of why objects are asked about and why scenes are not released, over the images so far."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], _Reason] = {}

    def add(self, decision: SceneDecision) -> None:
        for about, reasons in _blocking(decision):
            self._count(about, reasons)

    def rows(self) -> list[Row]:
        """The rows of the replay's table of the policy's limits, with LIMIT_SCHEMA: objects first, what blocked most on top."""
        ordered = sorted(self._found.items(), key=lambda item: (item[0][0], -item[1].blocked, item[0]))
        return [
            {
                "about": about,
                "reason": code,
                "subject": subject,
                "name": found.name,
                "limit": found.limit,
                "blocked": found.blocked,
                "alone": found.alone,
                **dict(
                    zip(("value_p10", "value_median", "value_p90"), _percentiles(found.values), strict=True)
                ),
            }
            for (about, code, subject), found in ordered
        ]

    def _count(self, about: str, reasons: Iterable[Reason]) -> None:
        # several places of one scene may be above the same limit: the first one is the highest
        distinct: dict[tuple[str, str, str], Reason] = {}
        for reason in reasons:
            distinct.setdefault((about, reason.code, reason.subject), reason)
        for key, reason in distinct.items():
            found = self._found.setdefault(key, _Reason(_name(reason), reason.limit))
            found.blocked += 1
            found.alone += len(distinct) == 1
            found.values.append(reason.value)


def remedy(row: Row) -> str:
    """What to do about the reason of a ``row`` of the replay's table of the policy's limits."""
    return _ADVICE.get(row["reason"]) or _ADVICE.get(row["subject"], _DETECTOR)


def blocked_by(decision: SceneDecision) -> list[str]:
    """What kept the scene of a replay's ``decision``, or an object in it, from being released: names of limits, sorted."""
    return sorted({_name(reason) for _, reasons in _blocking(decision) for reason in reasons})


def _blocking(decision: SceneDecision) -> Iterator[tuple[str, Sequence[Reason]]]:
    for verdict in decision.verdicts:
        if verdict.verdict is Verdict.ASK:
            # of an object seen in few passes the other reasons say what it may be
            rare = verdict.reasons[0].code == "few_passes"
            yield "object", verdict.reasons[:1] if rare else verdict.reasons
    if decision.outcome in (Outcome.ASK, Outcome.BLOCKED):
        # a restriction of perception is told with whatever holds the scene back, and does not hold it back itself
        yield "scene", [r for r in decision.reasons if r.code != "perception_restricted"]


def _name(reason: Reason) -> str:
    if reason.code in ("above_limit", "below_limit") and reason.subject in MEASURES:
        return MEASURES[reason.subject]
    return text_of(Reason(reason.code, reason.subject)).split(":")[0].split(" at x {")[0]


def _percentiles(values: Sequence[float]) -> Sequence[float]:
    known = np.asarray(values)[~np.isnan(values)]
    return np.percentile(known, [10, 50, 90]).tolist() if len(known) else [float("nan")] * 3
