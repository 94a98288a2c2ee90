"""Perception as the live node and the replay make it from settings: with adaptive passes it knows the gate's decision."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING

from sticker_uq.nodes.processes import share_folder
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import SceneAssessment
from sticker_uq.supervision import Policy, judge

if TYPE_CHECKING:
    from sticker_uq.perception import Perception


def load_perception(settings: PerceptionSettings) -> Perception:
    """The perception of ``settings``. Raises InvalidInput when weights, device or policy cannot be used."""
    # torch takes seconds to load: help and bad options need not wait
    from sticker_uq.perception import Perception

    if not settings.adaptive:
        return Perception(settings)
    policy = Policy.load(settings.adaptive_policy or share_folder() / "config" / "policy.yaml")
    return Perception(settings, decide=partial(decision, policy=policy))


def decision(scene: SceneAssessment, policy: Policy) -> Hashable:
    """What ``policy`` decides about ``scene`` and each of its objects, to be compared."""
    decided = judge(scene, policy)
    return decided.outcome, tuple(sorted((v.object.id, v.verdict) for v in decided.verdicts))
