# SPDX-License-Identifier: Apache-2.0
"""Perception as the live node and the replay make it from settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sticker_uq.io.parameter_files import read_parameters, refuse_unknown
from sticker_uq.io.setting_fields import validated
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from sticker_uq.detection import StochasticDetector
    from sticker_uq.perception.pipeline import Perception

_OF_THE_PROCESS = ("device", "threads")
"""What the file of another model may repeat but not change."""


def load_perception(settings: PerceptionSettings, detector: StochasticDetector | None = None) -> Perception:
    """The perception that ``settings`` describe, with ``detector`` if given, which was made from them.

    Raises InvalidInput when weights, device or panel cannot be used.
    """
    # torch takes seconds to load: help and bad options need not wait
    from sticker_uq.perception.pipeline import Perception

    return Perception(settings, detector)


def settings_of_file(file: Path, node: str, present: PerceptionSettings) -> PerceptionSettings:
    """``present`` settings of perception with those that the ROS 2 parameter ``file`` gives to ``node``, as from `sticker-uq
    select`.

    Raises InvalidInput for a file without any, with one that is not perception's, and with another device or number of threads.
    """
    values = read_parameters(file, node, PerceptionSettings.model_fields)
    refuse_unknown(values, list(PerceptionSettings.model_fields), file)
    if not values:
        raise InvalidInput(f"{file}: expected parameters of {node}, found none")
    known = present.model_dump()
    for name in _OF_THE_PROCESS:
        if values.get(name, known[name]) != known[name]:
            raise InvalidInput(f"{file}: {name} = {values[name]!r}: expected {known[name]!r}, as it is now")
    return validated(PerceptionSettings, known | {n: v for n, v in values.items() if n in known})
