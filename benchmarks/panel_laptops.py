# SPDX-License-Identifier: Apache-2.0
"""Laptops in front of a policy that hears a panel of monitors: what benchmarks.panel lets happen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.gate import Answer, OperatorAnswer, OperatorAnswers, Policy, judge
from sticker_uq.gate.box_overlap import Box, as_box, iou
from sticker_uq.io.coco import read_coco
from sticker_uq.lab.datasets.abnormal import add_foreign_objects
from sticker_uq.lab.rendering.render import RenderedScene, render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.lab.rendering.scene_spec import SceneSpec
from sticker_uq.lab.studies.ambiguity.pasting import paste
from sticker_uq.lab.studies.ambiguity.raae import train_raaes
from sticker_uq.lab.studies.ambiguity.sampling import AmbiguousImages, generate
from sticker_uq.lab.studies.monitors.cell_crops import PAIRS, RAAE, crops_of
from sticker_uq.lab.studies.monitors.detection_study import unchanged_pictures
from sticker_uq.perception import Perception
from sticker_uq.scene import ObjectClass, Outcome, SceneAssessment, Verdict

SIZE = (640, 480)
KINDS = ("as rendered", "foreign objects", "ambiguous objects")
_STEPS = 14  # looks at one laptop: more than it has stickers and doubts
_MEETS = 0.3  # IoU from which the blade meets what lies there
_EACH = 2  # ambiguous objects per laptop
_REACH = 6  # px around a thing that its shadow may cover
_DRAWN = 400  # ambiguous objects that laptops share, so that none depends on how many laptops there are
Image = NDArray[np.uint8]


@dataclass
class Laptop:
    """A laptop with ``things`` (K, 4) px that are no stickers on it; ``covered``: the picture with all of them."""

    spec: SceneSpec
    things: NDArray[np.float32]
    covered: Image
    changed: NDArray[np.bool_]

    def picture(self, gone: frozenset[int], taken: frozenset[int]) -> tuple[Image, RenderedScene]:
        """The picture without the stickers ``gone`` and the things ``taken``, and what the renderer knows about it."""
        spec = self.spec
        for number in gone:
            spec = spec.without_sticker(number)
        scene = render(spec, SIZE)
        image = scene.image.copy()
        kept = self.changed.copy()
        for number in taken:
            x1, y1, x2, y2 = (round(float(v)) for v in self.things[number])
            kept[max(0, y1 - _REACH) : y2 + _REACH, max(0, x1 - _REACH) : x2 + _REACH] = False
        image[kept] = self.covered[kept]
        return image, scene


@dataclass
class Course:
    """What one variant did with one laptop: ``wrongful`` removals, ``questions``, stickers ``alone`` removed without one, of
    ``stickers`` on it, and stickers ``left`` on a laptop that was called clean.
    """

    wrongful: int = 0
    questions: int = 0
    alone: int = 0
    left: int = 0
    stickers: int = 0
    ended: bool = False


@dataclass(frozen=True)
class Variant:
    """A policy that hears the monitors ``heard``."""

    name: str
    policy: Policy
    heard: frozenset[str]

    def filtered(self, scene: SceneAssessment) -> SceneAssessment:
        """``scene`` with the scores of those who are heard."""
        objects = tuple(
            replace(o, monitors=tuple(s for s in o.monitors if s.name in self.heard)) for o in scene.objects
        )
        return replace(scene, objects=objects)


class Assessments:
    """Assessments of one laptop by what is gone from it: all variants see the same ones."""

    def __init__(self, laptop: Laptop, perception: Perception) -> None:
        self._laptop, self._perception = laptop, perception
        self._known: dict[tuple[frozenset[int], frozenset[int]], tuple[SceneAssessment, RenderedScene]] = {}

    def at(self, gone: frozenset[int], taken: frozenset[int]) -> tuple[SceneAssessment, RenderedScene]:
        """What is seen and what is there without the stickers ``gone`` and the things ``taken``."""
        key = gone, taken
        if key not in self._known:
            image, truth = self._laptop.picture(gone, taken)
            self._known[key] = self._perception.assess(image), truth
        return self._known[key]


def run(laptop: Laptop, assessments: Assessments, variant: Variant) -> Course:
    """The course of one laptop in front of the policy of ``variant``, as it hears the panel."""
    course, memory = Course(), OperatorAnswers()
    gone: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    course.stickers = int((assessments.at(gone, taken)[1].labels == ObjectClass.STICKER).sum())
    for _ in range(_STEPS):
        scene, truth = assessments.at(gone, taken)
        decision = judge(variant.filtered(scene), variant.policy, memory)
        if decision.outcome is Outcome.WORK:
            verdict = decision.removable()[0]
            box = as_box(verdict.object.box)
            sticker, thing = meets(box, truth, laptop, taken)
            if sticker is not None:
                gone |= {sticker}
                course.alone += not verdict.by_operator
                memory = memory.consume(box)
                continue
            course.wrongful += not verdict.by_operator
            if thing is not None:
                taken |= {thing}
            else:  # a logo or the lid is ruined, and stays where it is
                memory = memory.remember([OperatorAnswer(Answer.KEEP, box)])
            memory = memory.consume(box)
        elif decision.outcome is Outcome.ASK:
            course.questions += 1
            memory = memory.remember(
                answer(as_box(v.object.box), truth, laptop, taken)
                for v in decision.verdicts
                if v.verdict in (Verdict.ASK, Verdict.UNKNOWN)
            ).checked()
        else:
            course.ended = True
            course.left = (
                int((truth.labels == ObjectClass.STICKER).sum()) if decision.outcome is Outcome.CLEAN else 0
            )
            return course
    return course


def meets(
    box: Box, truth: RenderedScene, laptop: Laptop, taken: frozenset[int]
) -> tuple[int | None, int | None]:
    """The id of the sticker, or the number of the thing, that a removal at ``box`` takes; neither: a logo or the bare lid."""
    lying = [
        (iou(box, as_box(b)), int(label), int(i), None)
        for b, label, i in zip(truth.boxes, truth.labels, truth.ids, strict=True)
    ]
    things = [(iou(box, as_box(b)), 0, -1, n) for n, b in enumerate(laptop.things) if n not in taken]
    overlap, label, number, thing = max([*lying, *things], key=lambda one: one[0], default=(0.0, 0, -1, None))
    if overlap < _MEETS:
        return None, None
    return (number if label == ObjectClass.STICKER else None), thing


def answer(box: Box, truth: RenderedScene, laptop: Laptop, taken: frozenset[int]) -> OperatorAnswer:
    """What somebody who knows says about the place ``box``."""
    sticker, _ = meets(box, truth, laptop, taken)
    return OperatorAnswer(Answer.REMOVE if sticker is not None else Answer.KEEP, box)


def laptop(kind: str, number: int, seed: int, made: AmbiguousImages) -> Laptop:
    """Laptop ``number`` of one of :data:`KINDS`; the same number is the same laptop under its things."""
    spec = sample_scene(seed + number)
    scene = render(spec, SIZE)
    rng = np.random.default_rng([seed, number])
    covered, things = scene.image, np.zeros((0, 4), np.float32)
    if kind == "foreign objects":
        abnormal = add_foreign_objects(scene.image, scene.boxes, scene.labels, rng, stickers=False)
        covered, things = abnormal.image, np.asarray(abnormal.added, np.float32).reshape(-1, 4)
    elif kind == "ambiguous objects":
        chosen = (_EACH * number + np.arange(_EACH)) % len(made)
        pasted = paste(scene.image, scene.boxes, made.images, chosen, rng)
        covered, things = pasted.image, pasted.boxes
    return Laptop(spec, things, covered, np.asarray((covered != scene.image).any(axis=2)))


def ambiguous_crops(folder: Path, seed: int) -> AmbiguousImages:
    """Crops between logo and sticker and between sticker and lid, made of the objects of the COCO folder."""
    crops, labels = crops_of(unchanged_pictures(read_coco(folder)), seed)
    raaes = train_raaes(crops, labels, PAIRS, RAAE, seed)
    drawn = generate(raaes, _DRAWN, seed=seed)
    order = np.random.default_rng(seed).permutation(len(drawn))
    return AmbiguousImages(drawn.images[order], drawn.pairs[order], drawn.probabilities[order])
