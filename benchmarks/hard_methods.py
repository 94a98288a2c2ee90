# SPDX-License-Identifier: Apache-2.0
"""The methods that benchmarks.hard compares: each says which objects of a scene are released and whether a person is asked.

Every method but a shipped policy has one limit. It is set on unchanged laptops to the same rate of questions, or of wrongful
releases, as for every other method, and is then frozen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from benchmarks.hard_measure import DROPOUT, SINGLE, MeasuredScene, Seen
from sticker_uq.calibration.fitting import LEFT_STICKERS, NOTABLE_RANGE, fit_policy
from sticker_uq.calibration.outcomes import with_limits
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.decisions import BLADE_IOU, harmful, released_regions
from sticker_uq.evaluation.metrics.matching import best_overlap
from sticker_uq.gate import Policy
from sticker_uq.gate.judge import judge, once_peeled
from sticker_uq.gate.policy.signals import object_signals
from sticker_uq.io.share import share_folder
from sticker_uq.scene import FloatArray, ObjectClass, Outcome, SceneAssessment, inner_regions
from sticker_uq.uncertainty import iou_matrix

STICKER = int(ObjectClass.STICKER)
NOTABLE = 0.2
"""Probability of sticker from which an object that is not released is asked about; of a method that
fits it, the one that all but `UNASKED` of the stickers seen on unchanged laptops reach, as `sticker-uq calibrate` does.
"""
UNASKED = LEFT_STICKERS
MOVED = "policy.yaml, moved"
"""The calibrated policy with another limit on its risk."""
SAME_IOU = 0.5
"""IoU from which a box is a duplicate of a released one."""
MATCH_IOU = BLADE_IOU
"""IoU from which a removal meets an object, as in `sticker-uq calibrate`."""
MARGIN = 0.1
"""By which the blade stays inside of a box, of every method that has no policy: that of `config/limits.yaml`."""


@dataclass(frozen=True)
class Decision:
    """``released`` (K, 4) px: boxes that may be removed without a question; ``asked``: a person is asked about the laptop, now or
    before it counts as done.
    """

    released: FloatArray
    asked: bool


class Method(Protocol):
    """What decides about a scene, with a limit or without."""

    @property
    def name(self) -> str:
        """As the tables have it."""

    @property
    def limited(self) -> bool:
        """Whether a limit is to be set."""

    def decide(self, scene: MeasuredScene, limit: float) -> Decision:
        """What it does with ``scene`` if doubt up to ``limit`` is accepted."""

    def doubts(self, scene: MeasuredScene) -> FloatArray:
        """The limits at which its decision on ``scene`` changes, (N,)."""


Doubt = Callable[[MeasuredScene], FloatArray]


@dataclass(frozen=True)
class ObjectLimit:
    """Releases every object called sticker and clustered whose doubt is within the limit.

    Anything else that is a sticker with a probability of at least ``notable`` is asked about.
    """

    name: str
    sampler: str
    doubt: Doubt
    notable: float = NOTABLE
    limited: bool = field(default=True, init=False)

    def decide(self, scene: MeasuredScene, limit: float) -> Decision:
        seen = scene.seen[self.sampler]
        # NaN is not within a limit
        return _decision(seen, candidates(seen) & (self.doubt(scene) <= limit), self.notable)

    def doubts(self, scene: MeasuredScene) -> FloatArray:
        values = self.doubt(scene)[candidates(scene.seen[self.sampler])]
        return values[np.isfinite(values)]


@dataclass(frozen=True)
class PolicyMethod:
    """A policy as it is, without the votes of the panel unless ``panel``; a limit is set on its risk score if ``limited``."""

    name: str
    policy: Policy
    panel: bool = False
    limited: bool = False

    def decide(self, scene: MeasuredScene, limit: float) -> Decision:
        """See :class:`Method`; asked: as `once_peeled` has it."""
        policy = (
            with_limits(self.policy, limit, self.policy.max_left_probability) if self.limited else self.policy
        )
        shown = scene.assessment if self.panel else without_panel(scene.assessment)
        decision = judge(shown, policy)
        asked = once_peeled(decision, shown, policy).outcome is not Outcome.CLEAN
        return Decision(released_regions(decision).astype(np.float32), asked)

    def doubts(self, scene: MeasuredScene) -> FloatArray:
        risk = self.policy.risk
        if risk is None:
            return np.zeros(0)
        shown = without_panel(scene.assessment)
        values = np.array(
            [risk(object_signals(o, shown)) for o in shown.objects if o.label is ObjectClass.STICKER]
        )
        return values[np.isfinite(values)]


def candidates(seen: Seen) -> np.ndarray:
    """Which objects are called sticker and were seen in enough passes to cluster, (N,) bool."""
    return (seen.probabilities.argmax(axis=1) == STICKER) & ~seen.unstable


def _decision(seen: Seen, released: np.ndarray, notable: float) -> Decision:
    left = ~released & ~duplicates(seen.boxes, seen.boxes[released])
    possible = over_all_passes(seen) >= notable
    return Decision(inner_regions(seen.boxes[released], MARGIN), bool((possible & left).any()))


def duplicates(boxes: FloatArray, released: FloatArray) -> np.ndarray:
    """Which of ``boxes`` (N, 4) lie on one that is ``released`` (K, 4): they are peeled with it, and no question, (N,) bool."""
    return best_overlap(boxes, released, SAME_IOU)[0] >= 0


def over_all_passes(seen: Seen) -> FloatArray:
    """Probability of sticker of every object, (N,), where a pass that did not see it says background."""
    return seen.rate * seen.probabilities[:, STICKER]


def without_panel(scene: SceneAssessment) -> SceneAssessment:
    """``scene`` as it is without a panel of monitors."""
    objects = tuple(replace(o, monitors=()) for o in scene.objects)
    return replace(scene, objects=objects, panel_hash="")


def signal(sampler: str, name: str) -> Doubt:
    """The doubt about every object that ``sampler`` measures as ``name``."""
    return lambda scene: scene.seen[sampler].signals[name]


def improbability(sampler: str) -> Doubt:
    """1 - the probability of sticker of every object of ``sampler``, over all its passes."""
    return lambda scene: 1.0 - over_all_passes(scene.seen[sampler]).astype(float)


def missed_passes(scene: MeasuredScene) -> FloatArray:
    """1 - K / T of every object."""
    return 1.0 - scene.seen[DROPOUT].rate


def combination(scenes: Sequence[MeasuredScene], base: Policy) -> Policy:
    """The policy that `sticker-uq calibrate` fits to ``scenes`` from ``base``, with an open limit on its risk score.

    Other weights than the packaged have no novelty network: what they release, they release without.
    """
    records = [
        Record(str(s.seed), s.boxes, s.labels.astype(np.int64), without_panel(s.assessment)) for s in scenes
    ]
    novel = any(np.isfinite(s.assessment.scene_distance) for s in scenes)
    return fit_policy(records, base if novel else base.model_copy(update={"unmeasured_novelty": "release"}))


def notable(scenes: Sequence[MeasuredScene], sampler: str) -> float:
    """The probability that all but `UNASKED` of the stickers which ``sampler`` saw in ``scenes`` reach; NOTABLE without any."""
    reached = []
    for scene in scenes:
        seen = scene.seen[sampler]
        same = iou_matrix(seen.boxes, scene.boxes[scene.labels == STICKER]) >= MATCH_IOU
        best = np.where(same, over_all_passes(seen)[:, None], -1.0).max(axis=0, initial=-1.0)
        reached += best[best >= 0].tolist()
    share = np.quantile(reached, UNASKED, method="lower") if reached else NOTABLE
    return float(np.clip(share, *NOTABLE_RANGE))


def methods(fit: Sequence[MeasuredScene]) -> list[Method]:
    """All of them; what learns, learns on ``fit``. The panel is among them where the scenes were measured with one."""
    once, passes = (notable(fit, sampler) for sampler in (SINGLE, DROPOUT))
    config = share_folder() / "config"
    by_hand = Policy.load(config / "limits.yaml")
    rendered = Policy.load(config / "policy.yaml").model_copy(update={"validity": None})
    found: list[Method] = [PolicyMethod("limits.yaml", by_hand)]
    if any(s.assessment.panel_hash for s in fit):
        found.append(PolicyMethod("limits.yaml and panel", by_hand, panel=True))
    return [
        *found,
        PolicyMethod("policy.yaml", rendered),
        PolicyMethod(MOVED, rendered, limited=True),
        PolicyMethod("calibrated combination", combination(fit, by_hand), limited=True),
        ObjectLimit("score, one pass", SINGLE, improbability(SINGLE), once),
        ObjectLimit("mean score, T passes", DROPOUT, improbability(DROPOUT), passes),
        ObjectLimit("detection rate", DROPOUT, missed_passes, passes),
        ObjectLimit("variation ratio", DROPOUT, signal(DROPOUT, "variation_ratio"), passes),
        ObjectLimit("Shannon entropy", DROPOUT, signal(DROPOUT, "shannon_entropy"), passes),
        ObjectLimit("mutual information", DROPOUT, signal(DROPOUT, "mutual_information"), passes),
        ObjectLimit("total variance / area", DROPOUT, signal(DROPOUT, "relative_total_variance"), passes),
        ObjectLimit(
            "predictive surface / area", DROPOUT, signal(DROPOUT, "relative_predictive_surface"), passes
        ),
        ObjectLimit("novelty of the object", DROPOUT, signal(DROPOUT, "novelty"), passes),
    ]


@dataclass(frozen=True)
class Result:
    """What one decision did with one laptop, as counts.

    ``wrong``: released objects that are no sticker, ``on_logo`` and ``on_thing`` those that meet a logo or what was put there;
    ``released``: all; ``right``: labelled stickers among ``stickers`` that were released; ``asked``; ``dirty_clean``: nobody was
    asked and a labelled sticker remains.
    """

    wrong: int
    on_logo: int
    on_thing: int
    released: int
    right: int
    stickers: int
    asked: bool
    dirty_clean: bool


def result(scene: MeasuredScene, decision: Decision) -> Result:
    """How ``decision`` compares with the truth. A removal at a hidden object counts as neither right nor wrong."""
    place, _ = best_overlap(decision.released, scene.boxes, MATCH_IOU)
    label = np.where(place >= 0, np.append(scene.labels, 0)[place], 0)
    hidden = (place < 0) & (best_overlap(decision.released, scene.hidden, MATCH_IOU)[0] >= 0)
    thing = (place < 0) & (best_overlap(decision.released, scene.things, MATCH_IOU)[0] >= 0)
    harm = harmful(decision.released, scene.boxes, scene.labels)
    wrong = harm & ~hidden
    right = len(np.unique(place[~harm]))
    stickers = int((scene.labels == STICKER).sum())
    return Result(
        wrong=int(wrong.sum()),
        on_logo=int((label == int(ObjectClass.LOGO)).sum()),
        on_thing=int((wrong & thing).sum()),
        released=len(place) - int(hidden.sum()),
        right=right,
        stickers=stickers,
        asked=decision.asked,
        dirty_clean=not decision.asked and len(np.unique(place[label == STICKER])) < stickers,
    )


Goal = tuple[Literal["asked", "wrong"], float]
"""What a limit is set to: the share of unchanged laptops asked about, or with a wrongful removal, and how large it is."""


def limit_for(method: Method, scenes: Sequence[MeasuredScene], goal: Goal) -> float:
    """The limit of ``method`` at which the share of ``scenes`` comes closest to ``goal`` without exceeding it.

    Fewer are asked about and more go wrong as the limit rises. Returned is the strictest limit that asks about few enough, or the
    loosest that goes wrong seldom enough; infinite where every limit asks about too many, and NaN, which releases nothing, where
    every limit goes wrong too often.
    """
    if not method.limited:
        return float("inf")
    values = np.unique(np.concatenate([method.doubts(scene) for scene in scenes]))
    kind, share = goal
    low, high = 0, len(values)  # of the first limit that asks few enough, or goes wrong too often

    def rate(limit: float) -> float:
        found = [result(scene, method.decide(scene, limit)) for scene in scenes]
        return float(np.mean([one.asked if kind == "asked" else one.wrong > 0 for one in found]))

    while low < high:
        middle = (low + high) // 2
        passed = (
            rate(float(values[middle])) <= share if kind == "asked" else rate(float(values[middle])) > share
        )
        low, high = (low, middle) if passed else (middle + 1, high)
    if kind == "asked":
        return float(values[low]) if low < len(values) else float("inf")
    return float(values[low - 1]) if low else float("nan")
