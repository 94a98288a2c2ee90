# SPDX-License-Identifier: Apache-2.0
"""What a limit of a policy is: which signal it bounds, and before what it holds. The fields of `Policy` are the table of them.

What is no highest value of one signal is judged by itself in `rules` and `judge`: the lower limits, the risk score, the panel,
and what is compared over several objects (`max_logo_overlap`, `max_left_probability`).
"""

from dataclasses import dataclass
from enum import Enum


class Before(Enum):
    """What may not happen while a limit is exceeded, or what it bounds was not measured; a person is asked instead."""

    REMOVAL = "that object is removed"
    START = "anything of the scene is removed or called clean"
    QUESTION = "the scene is asked about or called clean"
    CLEAN = "the scene is called clean as it looks: the stickers on it count"
    REST = "the scene is called clean: only what is left alone counts, so that it is known before the stickers are gone"


@dataclass(frozen=True)
class Limit:
    """The highest value of a signal; set to ``off`` or above it limits nothing, not even that the signal was measured.

    ``signal``: the subject of its reasons, and what ``scene_signal`` or, with ``before`` REMOVAL, the object measures by that
    name or as ``measured_as``. A signal of the scene has the range 0 to ``off``. ``stood_in_for``: the risk score or the section
    ``saliency`` of a calibrated policy does its work. ``network``: the novelty network measures it, which may be missing.
    ``place``: code of the reason for each place that no box explains.
    """

    signal: str
    before: Before
    off: float = 1.0
    measured_as: str = ""
    stood_in_for: bool = False
    network: bool = False
    place: str = ""

    @property
    def is_released_unmeasured(self) -> bool:
        """Whether ``unmeasured_novelty: release`` passes over it without a network. Clean is never called unmeasured."""
        return self.network and self.before in (Before.REMOVAL, Before.START)
