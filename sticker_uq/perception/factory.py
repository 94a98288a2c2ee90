# SPDX-License-Identifier: Apache-2.0
"""Perception as the live node and the replay make it from settings: one model, or a cascade of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sticker_uq.gate import Policy
from sticker_uq.io.parameter_files import read_parameters, refuse_unknown
from sticker_uq.io.setting_fields import validated
from sticker_uq.io.share import share_folder
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from sticker_uq.detection import StochasticDetector
    from sticker_uq.perception import Cascade, Perception

NODE = "detector"
_OF_THE_PROCESS = ("device", "threads")
"""What the file of another model may repeat but not change."""
_NO_ESCALATION = {"escalate_to": "", "escalation_budget_s": 0.0}
_NO_PANEL = {"panel": "", "monitors": ""}
"""A panel is fitted for one detector: another one's file names its own."""


def load_perception(settings: PerceptionSettings) -> Perception | Cascade:
    """The perception that ``settings`` describe. Raises InvalidInput when weights, device, policy or a model's file cannot be
    used.
    """
    if not settings.escalate_to:
        return single_perception(settings)
    # torch takes seconds to load: help and bad options need not wait
    from sticker_uq.perception import Cascade, Perception

    if not settings.escalate_to:
        return Perception(settings)
    first = settings.model_copy(update=_NO_ESCALATION)
    files = [Path(name.strip()) for name in settings.escalate_to.split(",")]
    larger = [settings_of_file(file, NODE, first.model_copy(update=_NO_PANEL)) for file in files]
    for file, one in zip(files, larger, strict=True):
        if one.escalate_to:
            raise InvalidInput(
                f"{file}: escalate_to = {one.escalate_to!r}: expected none in a model of a cascade"
            )
    policy = Policy.load(settings.escalation_policy or share_folder() / "config" / "policy.yaml")
    return Cascade(settings, [single_perception(one) for one in (first, *larger)], policy)


def settings_of_file(file: Path, node: str, present: PerceptionSettings) -> PerceptionSettings:
    """``present`` settings of perception with those that the ROS 2 parameter ``file`` gives to ``node``, as from `sticker-uq
    select`.

    Raises InvalidInput for a file without any, with one that is not perception's, and with another device or number of threads.
    """
    values = read_parameters(file, node)
    refuse_unknown(values, list(PerceptionSettings.model_fields), file)
    if not values:
        raise InvalidInput(f"{file}: expected parameters of {node}, found none")
    known = present.model_dump()
    for name in _OF_THE_PROCESS:
        if values.get(name, known[name]) != known[name]:
            raise InvalidInput(f"{file}: {name} = {values[name]!r}: expected {known[name]!r}, as it is now")
    return validated(PerceptionSettings, known | {n: v for n, v in values.items() if n in known})


def single_perception(settings: PerceptionSettings, detector: StochasticDetector | None = None) -> Perception:
    """The perception of one model, no cascade, with ``detector`` if given; raises as :func:`load_perception`, also for a
    cascade.
    """
    from sticker_uq.perception import Perception

    return Perception(settings, detector)
