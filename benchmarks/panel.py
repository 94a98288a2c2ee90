"""What a panel of supervisors changes in the closed loop: wrongful removals and questions, with and without it.

    python -m benchmarks.panel --panel PANEL --data COCO_FOLDER --laptops 40

Rendered laptops come as they are, with things that no training picture had, and with objects between logo and sticker or between
sticker and lid (AmbiGuess on the crops of COCO_FOLDER, pasted in). One after the other is looked at, judged and changed as the
cell would do it: what the policy removes is gone from the next picture, a question is answered by somebody who knows the truth.
All variants share the pictures and the scores. PANEL is a folder of `sticker-uq supervisors fit`, whose limits are used; the
policy is config/policy.yaml unless another is given. A removal that nobody was asked about is wrongful where no sticker lies: a
logo, the bare lid, a strange thing, or a thing that is half a sticker at most.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.ambiguity.pasting import paste
from sticker_uq.ambiguity.raae import train_raaes
from sticker_uq.ambiguity.sampling import AmbiguousImages, generate
from sticker_uq.datasets.abnormal import strange
from sticker_uq.datasets.coco import read_coco
from sticker_uq.datasets.files import atomic_write
from sticker_uq.datasets.render import RenderedScene, render
from sticker_uq.datasets.scenes import sample_scene
from sticker_uq.datasets.spec import SceneSpec
from sticker_uq.nodes.processes import share_folder
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import InvalidInput, ObjectClass, Outcome, SceneAssessment, Verdict
from sticker_uq.studies.cell import PAIRS, RAAE, crops_of
from sticker_uq.studies.detections import plain
from sticker_uq.studies.report import clopper_pearson
from sticker_uq.supervision import Answer, Memory, PersonAnswer, Policy, judge
from sticker_uq.supervision.boxes import Box, as_box, iou

SIZE = (640, 480)
SEED = 7_500_000
KINDS = ("as rendered", "strange things", "ambiguous objects")
_STEPS = 14  # looks at one laptop: more than it has stickers and doubts
_MEETS = 0.3  # IoU from which the blade meets what lies there
_EACH = 2  # ambiguous objects per laptop
_REACH = 6  # px around a thing that its shadow may cover
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
    """What one variant did with one laptop: ``wrongful`` removals, ``questions``, stickers ``alone`` removed without one, and
    stickers ``left`` on a laptop that was called clean.
    """

    wrongful: int = 0
    questions: int = 0
    alone: int = 0
    left: int = 0
    ended: bool = False


@dataclass
class Variant:
    """A policy that hears the supervisors ``heard``."""

    name: str
    heard: frozenset[str]
    courses: dict[str, list[Course]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def filtered(self, scene: SceneAssessment) -> SceneAssessment:
        """``scene`` with the scores of those who are heard."""
        objects = tuple(
            replace(o, supervisors=tuple(s for s in o.supervisors if s.name in self.heard))
            for o in scene.objects
        )
        return replace(scene, objects=objects)


class Looks:
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


def run(laptop: Laptop, looks: Looks, variant: Variant, policy: Policy) -> Course:
    """The course of one laptop in front of ``policy`` as ``variant`` hears the panel."""
    course, memory = Course(), Memory()
    gone: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    for _ in range(_STEPS):
        scene, truth = looks.at(gone, taken)
        decision = judge(variant.filtered(scene), policy, memory)
        if decision.outcome is Outcome.WORK:
            verdict = decision.removable()[0]
            box = as_box(verdict.object.box)
            sticker, thing = meets(box, truth, laptop, taken)
            if sticker is not None:
                gone |= {sticker}
                course.alone += not verdict.by_person
                memory = memory.consume(box)
                continue
            course.wrongful += not verdict.by_person
            if thing is not None:
                taken |= {thing}
            else:  # a logo or the lid is ruined, and stays where it is
                memory = memory.remember([PersonAnswer(Answer.KEEP, box)])
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


def answer(box: Box, truth: RenderedScene, laptop: Laptop, taken: frozenset[int]) -> PersonAnswer:
    """What somebody who knows says about the place ``box``."""
    sticker, _ = meets(box, truth, laptop, taken)
    return PersonAnswer(Answer.REMOVE if sticker is not None else Answer.KEEP, box)


def laptops(kind: str, count: int, seed: int, made: AmbiguousImages) -> Iterator[Laptop]:
    """``count`` laptops of one of :data:`KINDS`, each of a seed of its own."""
    for number in range(count):
        spec = sample_scene(seed + number)
        scene = render(spec, SIZE)
        rng = np.random.default_rng([seed, number])
        covered, things = scene.image, np.zeros((0, 4), np.float32)
        if kind == "strange things":
            abnormal = strange(scene.image, scene.boxes, scene.labels, rng, stickers=False)
            covered, things = abnormal.image, np.asarray(abnormal.added, np.float32).reshape(-1, 4)
        elif kind == "ambiguous objects":
            chosen = (_EACH * number + np.arange(_EACH)) % len(made)
            pasted = paste(scene.image, scene.boxes, made.images, chosen, rng)
            covered, things = pasted.image, pasted.boxes
        yield Laptop(spec, things, covered, np.asarray((covered != scene.image).any(axis=2)))


def ambiguous_crops(folder: Path, count: int, seed: int) -> AmbiguousImages:
    """Crops between logo and sticker and between sticker and lid, made of the objects of the COCO folder."""
    crops, labels = crops_of(plain(read_coco(folder)), seed)
    raaes = train_raaes(crops, labels, PAIRS, RAAE, seed)
    drawn = generate(raaes, count, seed=seed)
    order = np.random.default_rng(seed).permutation(len(drawn))
    return AmbiguousImages(drawn.images[order], drawn.pairs[order], drawn.probabilities[order])


def as_markdown(variants: Sequence[Variant], count: int) -> str:
    """One row for every kind of laptop and variant."""
    lines = [
        f"{count} laptops of each kind. Wrongful: laptops with a removal of what is no sticker without a question, with the 95 % "
        "interval of Clopper and Pearson.",
        "",
        "| laptops | heard | wrongful | wrongful removals | questions per laptop | stickers removed without one "
        "| called clean with a sticker |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for variant in variants:
            courses = variant.courses[kind]
            bad = sum(course.wrongful > 0 for course in courses)
            low, high = clopper_pearson(bad, len(courses))
            lines.append(
                f"| {kind} | {variant.name} | {bad / len(courses):.3f} ({low:.3f} to {high:.3f}) "
                f"| {sum(c.wrongful for c in courses)} | {sum(c.questions for c in courses) / len(courses):.2f} "
                f"| {sum(c.alone for c in courses)} | {sum(c.left > 0 for c in courses)} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--panel", required=True, type=Path, help="folder of `sticker-uq supervisors fit`")
    parser.add_argument(
        "--data", required=True, type=Path, help="COCO folder whose crops ambiguous objects are made of"
    )
    parser.add_argument("--laptops", type=int, default=40, help="laptops of each kind")
    parser.add_argument("--policy", type=Path, help="policy file; default: the packaged one")
    parser.add_argument("--seed", type=int, default=SEED, help="of the first laptop")
    parser.add_argument("--out", type=Path, help="file for the table, Markdown")
    given = parser.parse_args()
    if given.laptops < 1:
        parser.error(f"--laptops {given.laptops}: expected 1 or more")
    try:
        policy = Policy.load(given.policy or share_folder() / "config" / "policy.yaml")
        perception = Perception(PerceptionSettings(panel=str(given.panel)))
        made = ambiguous_crops(given.data, _EACH * given.laptops, 0)
    except InvalidInput as error:
        sys.exit(f"error: {error}")
    names = perception.votes
    variants = [Variant("nobody", frozenset()), Variant("the panel", frozenset(names))]
    variants += [Variant(name, frozenset((name,))) for name in names]
    for kind in KINDS:
        for laptop in laptops(kind, given.laptops, given.seed, made):
            looks = Looks(laptop, perception)
            for variant in variants:
                variant.courses[kind].append(run(laptop, looks, variant, policy))
        print(f"{kind}: done", file=sys.stderr, flush=True)
    text = as_markdown(variants, given.laptops)
    print(text)
    if given.out is not None:
        with atomic_write(given.out, "w") as stream:
            stream.write(text)


if __name__ == "__main__":
    main()
