# SPDX-License-Identifier: Apache-2.0
"""A cascade of models: the small one first, a larger one while the decision is uncertain and the time allows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sticker_uq.gate import Policy, judge
from sticker_uq.perception.image_facts import ImageFacts, image_facts
from sticker_uq.perception.pipeline import Perception
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import InvalidInput, Outcome, SceneAssessment

_SMOOTHING = 0.2
"""Weight of the newest time in the expected one."""


@dataclass(frozen=True)
class CascadeStage:
    """A model of a cascade that may assess an image: ``assess`` does it and is expected to take ``expected_ms``."""

    assess: Callable[[], SceneAssessment]
    expected_ms: float


def asks_a_person(scene: SceneAssessment, policy: Policy) -> bool:
    """Cascade: whether ``policy`` would have a person asked now: about the scene, or because only doubtful objects are left."""
    return judge(scene, policy).outcome is Outcome.ASK


def escalate(
    stages: Sequence[CascadeStage], unsure: Callable[[SceneAssessment], bool], budget_ms: float
) -> list[SceneAssessment]:
    """The cascade's assessments of one image by the ``stages`` that ran, the smallest first; the last one counts.

    The next stage runs while ``unsure`` of the last assessment and while all together are expected to take no more than
    ``budget_ms`` (0: no limit). The first always runs. When the last one is unsure too, or the time is up, the decision is left
    to a person, as the policy has it.
    """
    scenes = [stages[0].assess()]
    for stage in stages[1:]:
        spent = sum(scene.timings["total"] for scene in scenes)
        if not unsure(scenes[-1]) or (budget_ms and spent + stage.expected_ms > budget_ms):
            break
        scenes.append(stage.assess())
    return scenes


class Cascade:
    """A cascade of models with the interface of `Perception`.

    It has one identity, whichever of the models answered: ``model_hash`` is over the weights of all of them and the hash of
    its settings over theirs and the budget, so that a policy is made for a cascade as for a model. ``model``, passes and dropout
    rate of an assessment are those of the model that answered. With a budget the speed of the machine decides which models run.
    """

    def __init__(self, settings: PerceptionSettings, stages: Sequence[Perception], policy: Policy) -> None:
        """``stages`` from small to large, the first made from ``settings`` but for what concerns escalation.

        A larger one assesses the image where ``policy`` would have a person asked, whichever detector it was made for: one that
        refused every scene would never ask. Raises InvalidInput for fewer than two stages.
        """
        if len(stages) < 2:
            raise InvalidInput(f"a cascade of {len(stages)} models: expected two or more")
        policy = policy.model_copy(update={"validity": None})
        self.settings = settings
        self._stages = list(stages)
        self._unsure = partial(asks_a_person, policy=policy)
        self._budget_ms = settings.escalation_budget_s * 1e3
        self._expected_ms = [0.0] * len(stages)
        self.model_hash = _digest([stage.model_hash for stage in stages])
        self.settings_hash = _digest(
            [*(s.settings_hash for s in stages), f"{settings.escalation_budget_s!r}", policy.hash]
        )
        panels = [stage.panel_hash for stage in stages]
        self.panel_hash = _digest(panels) if any(panels) else ""

    @property
    def novelty_problem(self) -> str:
        """Why no model of the cascade measures novelty; empty when one does, or when it is switched off."""
        problems = [stage.novelty_problem for stage in self._stages]
        return problems[0] if all(problems) else ""

    @property
    def device(self) -> str:
        """What the cascade computes on, in words; see :attr:`Perception.device`."""
        return self._stages[0].device

    @property
    def shortage(self) -> str:
        """Perception by a cascade: what the device's memory did not suffice for, of all its models; "" where it did."""
        return "; ".join(stage.shortage for stage in self._stages if stage.shortage)

    def warm_up(self) -> None:
        """Let every model of the cascade assess an empty picture twice: the second time tells how long it takes."""
        for number, stage in enumerate(self._stages):
            stage.warm_up()
            self._expected_ms[number] = stage.warm_up().timings["total"]

    def assess(
        self,
        image: NDArray[np.uint8],
        stamp_ns: int = 0,
        frame_id: str = "",
        keep_saliency: bool = False,
        facts: ImageFacts | None = None,
    ) -> SceneAssessment:
        """The cascade's `Perception.assess`; the time of all models is ``total``, that of those before the last
        ``escalation``.
        """
        known = image_facts(image) if facts is None else facts

        def run(number: int) -> SceneAssessment:
            scene = self._stages[number].assess(image, stamp_ns, frame_id, keep_saliency, known)
            before, took = self._expected_ms[number], scene.timings["total"]
            self._expected_ms[number] = before + _SMOOTHING * (took - before) if before else took
            return self._own(scene)

        stages = [
            CascadeStage(lambda n=number: run(n), expected)  # type: ignore[misc]
            for number, expected in enumerate(self._expected_ms)
        ]
        *earlier, last = escalate(stages, self._unsure, self._budget_ms)
        if not earlier:
            return last
        lost = sum(scene.timings["total"] for scene in earlier)
        return replace(
            last, timings=last.timings | {"escalation": lost, "total": lost + last.timings["total"]}
        )

    def failed_assessment(self, stamp_ns: int, frame_id: str, reason: str) -> SceneAssessment:
        """The cascade's assessment of an image that failed: status FAILED with ``reason``; it closes the gate."""
        return self._own(self._stages[0].failed_assessment(stamp_ns, frame_id, reason))

    def _own(self, scene: SceneAssessment) -> SceneAssessment:
        return replace(
            scene,
            model_hash=self.model_hash,
            settings_hash=self.settings_hash,
            panel_hash=self.panel_hash,
        )


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
