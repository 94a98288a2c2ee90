# SPDX-License-Identifier: Apache-2.0
"""The words of the cell's messages: English text of every code of a :class:`sticker_uq.scene.Reason`, of logs and of gate
block reasons.

The gate, the policy and the nodes hand over codes and values. Logs, reports, pictures, ``sticker-uq audit`` and the ``text``
fields of ROS messages are rendered here, at the edge. All words are in ``words_en.json``: those of the cell, and for the same
codes those of the operator's page (:data:`PAGE_WORDS`), which knows no words of the makers. The page speaks the languages of the
other ``words_*.json`` too; logs, reports and ``/diagnostics`` are English.

``{value}``, ``{limit}`` and ``{subject}`` of a template stand for these fields of the reason, ``{x1}`` to ``{y2}`` for its box,
any other name for one of its ``values``. The subject and a value ``signal`` have words in ``SUBJECTS``. A value ``detail`` needs
no place in the template: it follows after a colon.
"""

import json
import math
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path
from string import Formatter
from typing import Any

from sticker_uq.scene import METRICS, Reason


class BlockReason(IntFlag):
    """Why the gate is closed, the bits of ``GateState.REASON_*``; :data:`BLOCK_REASONS` has the words."""

    NONE = 0
    NO_SCENE = 1
    STALE_SCENE = 2
    FAILED_SCENE = 4
    IMPLAUSIBLE_SCENE = 8
    INCONSISTENT = 16
    UNCERTAIN = 32
    NOTHING_TO_REMOVE = 64
    WAITING_FOR_OPERATOR = 128
    HELD = 256
    ARM_FAILED = 512
    VERIFYING = 1024
    FAULT = 2048
    CONTRADICTED = 4096
    NOT_ACTIVE = 8192
    STAMP_ORDER = 16384
    FROZEN_IMAGE = 32768
    EXPOSURE = 65536
    SOURCE_CHANGED = 131072
    MODEL_CHANGED = 262144
    CLOCK = 524288
    POSE = 1048576
    ASSUMPTION = 2097152
    UNEXPLAINED = 4194304
    AUDIT = 8388608
    SECOND_GATE_PUBLISHER = 16777216
    UNKNOWN_GATE_PUBLISHER = 33554432
    PANEL = 67108864
    UNCALIBRATED = 134217728
    # 268435456 was SECOND_VIEW until 0.3.0: it stays reserved
    SECOND_IMAGE_PUBLISHER = 536870912
    SECOND_SCENE_PUBLISHER = 1073741824

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all reasons in here, as :data:`BLOCK_REASONS` names them."""
        return tuple(str(bit.name).lower() for bit in self)


CALM = (
    BlockReason.WAITING_FOR_OPERATOR
    | BlockReason.UNEXPLAINED
    | BlockReason.PANEL
    | BlockReason.UNCERTAIN
    | BlockReason.CONTRADICTED
    | BlockReason.VERIFYING
    | BlockReason.INCONSISTENT
    | BlockReason.NOTHING_TO_REMOVE
)
"""Reasons that end by themselves, or with a question to the operator; all others want something done."""

_CATALOGUE: dict[str, Any] = json.loads(Path(__file__).with_name("words_en.json").read_text(encoding="utf-8"))
_WORDS: dict[str, dict[str, str]] = _CATALOGUE["cell"]
BLOCK_REASONS = _WORDS["block_reasons"]
"""Why the gate is closed, by the names of ``GateState.REASON_*`` in lower case; the order in which they are listed."""

BLOCK_ADVICE = _WORDS["block_advice"]
"""What to do about each reason, for docs/howto/troubleshooting.md; the same names in the same order."""

LACKS = _WORDS["lacks"]
"""What may be missing in a picture of the laptop."""

_SHOWN_BY = {
    "appearance": "sticker_probability logo_probability possible_sticker detection_rate few_passes shannon_entropy "
    "variation_ratio mutual_information risk",
    "outline": "relative_total_variance relative_predictive_surface detected_twice",
    "overlooked": "dil background_saliency unexplained_objectness missed_sticker_probability missed_place "
    "clean_not_promised left_probability",
}
_LACKED_BY = {subject: lack for lack, subjects in _SHOWN_BY.items() for subject in subjects.split()}


def lack_of(reason: Reason) -> str:
    """What the picture does not show where ``reason`` holds something back, one of :data:`LACKS`; empty: nothing."""
    return _LACKED_BY.get(_metric_or_code(reason), "")


_PARTICULAR = {
    BlockReason.EXPOSURE: "mean_level dark_share saturated_share",
    BlockReason.FROZEN_IMAGE: "image_repeats",
    BlockReason.AUDIT: "audit_write_failed audit_behind",
    BlockReason.CLOCK: "clock_ahead clock_back stamp_in_future clock_zero clock_stands",
    BlockReason.STALE_SCENE: "image_late stamp_since_start images_apart scenes_too_slow clock_stands",
    BlockReason.STAMP_ORDER: "stamp_invalid stamp_unchanged stamp_backwards",
    BlockReason.SOURCE_CHANGED: "image_source_changed calibration_changed",
    BlockReason.MODEL_CHANGED: "weights_changed settings_changed panel_changed policy_changed",
    BlockReason.SECOND_GATE_PUBLISHER: "other_gate_publishers",
    BlockReason.UNKNOWN_GATE_PUBLISHER: "gate_publishers_not_received listening_first",
    BlockReason.SECOND_IMAGE_PUBLISHER: "image_publishers image_publishers_unknown",
    BlockReason.SECOND_SCENE_PUBLISHER: "scene_publishers",
    BlockReason.UNCALIBRATED: "policy_uncalibrated policy_releases_unfamiliar",
    BlockReason.UNEXPLAINED: "missed_place unexplained_objectness",
    BlockReason.PANEL: "monitors_object",
    BlockReason.POSE: "calibration_unknown camera_info_missing lid_unknown frame_pose_unknown object_not_located",
    BlockReason.ASSUMPTION: "drift wrong_removal missed_sticker policy_other_weights policy_other_settings policy_other_device "
    "policy_other_panel policy_other_camera policy_other_image_size policy_expired",
}


def is_explained(closed: BlockReason, details: Iterable[Reason]) -> bool:
    """Whether one of ``details`` says the same as the block reason ``closed`` in particular, which then adds nothing."""
    particular = _PARTICULAR.get(closed, "").split()
    return any(_metric_or_code(reason) in particular for reason in details)


def _metric_or_code(reason: Reason) -> str:
    """What ``reason`` is about: of a limit its metric, else its code."""
    return reason.subject if reason.code in ("above_limit", "below_limit") else reason.code


PHASES = _WORDS["phases"]
"""The states of the gate, by the names of ``GateState.STATE_*``."""


def gate_state(number: int) -> str:
    """The name in :data:`PHASES` of the state with this ``number``; "unknown" for a number without one."""
    return list(PHASES)[number if 0 <= number < len(PHASES) else 0]


VERDICTS = _WORDS["verdicts"]
"""What was decided about an object, by the names of ``Verdict.VERDICT_*``."""

OUTCOMES = _WORDS["outcomes"]
"""What was decided about a scene, by the names of ``SceneDecision.OUTCOME_*``."""

LABELS = _WORDS["labels"]
"""The classes of the detector."""

ERROR_CODES = _WORDS["error_codes"]
"""How a removal ended, by the names of ``RemoveSticker.Result.ERROR_*``."""

ANSWERS = _WORDS["answers"]
"""What an operator says about an object, by the names of ``ObjectAnswer.ANSWER_*``."""

SCENE_ANSWERS = _WORDS["scene_answers"]
"""What an operator says about the whole scene, by the names of ``ResolveIntervention.SCENE_*``."""

MEASURES = _WORDS["measures"] | {name: metric.words for name, metric in METRICS.items()}
"""What is measured of an object, a scene or an image."""

SUBJECTS = {**MEASURES, **LABELS, **ERROR_CODES, **PHASES, **LACKS}
"""The words of ``Reason.subject``; what is not in here, such as the name of a monitor, stands for itself."""

PAGE_WORDS = {**_CATALOGUE["page"], "subjects": SUBJECTS | _CATALOGUE["page"]["subjects"]}
"""All English words of the operator's page, as its scripts read them."""

PAGE_LANGUAGES: dict[str, dict[str, Any]] = {"en": PAGE_WORDS} | {
    words["lang"]: words
    for path in sorted(Path(__file__).parent.glob("words_*.json"))
    if (words := json.loads(path.read_text(encoding="utf-8"))["page"])["lang"] != "en"
}
"""The words of the operator's page by language (ISO 639-1)."""

MESSAGES = BLOCK_REASONS | _WORDS["messages"]
"""The words of every code that an operator may see."""

LOG_LINES = _WORDS["log_lines"]
"""The beginnings of log lines about what the gate did; the reasons follow."""

_TEMPLATES = MESSAGES | LOG_LINES


def text_of(reason: Reason) -> str:
    """``reason`` in English, one :func:`printable` sentence without a full stop. Of an unknown code: the code with its values."""
    fields = dict(reason.values)
    detail = fields.pop("detail", "")
    template = _TEMPLATES.get(reason.code)
    if template is None:
        known = {"subject": reason.subject, **fields}
        text = " ".join([reason.code, *(f"{name}={value}" for name, value in known.items() if value != "")])
    else:
        value, limit = _pair(reason.value, reason.limit)
        words = {"value": value, "limit": limit, "subject": SUBJECTS.get(reason.subject, reason.subject)}
        for name, edge in zip(("x1", "y1", "x2", "y2"), reason.box or (), strict=False):
            words[name] = f"{edge:.0f}"
        for name, item in fields.items():
            word = SUBJECTS.get(str(item), item) if name == "signal" else item
            words[name] = _number(word) if isinstance(word, float) else word
        text = template.format_map(_Fields(words))
    return printable(f"{text}: {detail}" if detail else text)


def printable(text: str) -> str:
    """``text`` from outside as it may stand in a line of a log or a terminal.

    Control characters, line breaks, characters that turn the direction of writing and lone surrogates are escaped as in Python
    (``\\x1b``).
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def texts_of(reasons: Iterable[Reason]) -> str:
    """All ``reasons`` in one line."""
    return "; ".join(map(text_of, reasons))


def gate_text(block_reasons: Iterable[str], details: Iterable[Reason]) -> str:
    """Why the gate is closed, in one line: its block reasons in words, then their details. Empty for an open gate."""
    names = set(block_reasons)
    closed = "; ".join(words for name, words in BLOCK_REASONS.items() if name in names)
    why = texts_of(details)
    return f"{closed}: {why}" if why else closed


def log_line(reasons: Iterable[Reason]) -> str:
    first, *rest = reasons
    return f"{text_of(first)}: {texts_of(rest)}" if rest else text_of(first)


def placeholders(template: str) -> frozenset[str]:
    """The names in braces in ``template``."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


class _Fields(dict[str, str]):
    """What a message lacks is shown as its name: a message must come out whatever is wrong with it."""

    def __missing__(self, name: str) -> str:
        return "{" + name + "}"


def _number(value: float, digits: int = 3) -> str:
    if math.isnan(value):
        return "not measured"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def _pair(value: float, limit: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart."""
    pairs = ((_number(value, digits), _number(limit, digits)) for digits in range(3, 8))
    return next(
        (pair for pair in pairs if pair[0] != pair[1] or value == limit),
        (_number(value, 7), _number(limit, 7)),
    )
