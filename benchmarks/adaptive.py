"""What adaptive passes save and what they change, on rendered scenes that the packaged weights never saw.

    OMP_NUM_THREADS=1 python -m benchmarks.adaptive --scenes 500

Of every scene all T passes are made once. Adaptive sampling then sees them in its own steps, as it would have made them: a pass
does not depend on those made with it. Printed per error: passes on average, scenes whose outcome differs from that of T passes,
objects whose verdict does, objects that would be released for removal though T passes would not release them, and scenes by
number of passes. An object that only one of the two sees counts as different unless it is left alone. Then fixed smaller numbers
of passes, for comparison, and what a rule would need that knows all passes in advance: the fewest from which on nothing differs,
and the fewest on average if half a percent of the verdicts may differ. No rule can undercut that one at the same price.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from sticker_uq.detection import load_detector
from sticker_uq.gate import Policy, judge
from sticker_uq.io.files import atomic_write
from sticker_uq.io.share import share_folder
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.factory import decision
from sticker_uq.perception.novelty import ImageNovelty, NoveltyEstimator
from sticker_uq.perception.pipeline import image_seed
from sticker_uq.perception.sequential import should_stop, step_after
from sticker_uq.scene import IntArray, Outcome, SceneAssessment, SceneDecision, StochasticSamples, Verdict
from sticker_uq.uncertainty import iou_matrix, observe

FIRST_SEED = 50_000_000
_SAME_PLACE = 0.5
_BESIDE = 0.3  # IoU from which a thing that is seen later is a part of the one seen now
_BUDGET = 0.005  # share of the verdicts that may differ


@dataclass(frozen=True)
class Row:
    """One line of the table; ``by_passes`` maps a number of passes to scenes."""

    sampling: str
    mean_passes: float
    scenes: int
    outcomes_differ: int
    objects: int
    verdicts_differ: int
    only_early: int
    by_passes: dict[int, int]


@dataclass(frozen=True)
class Seen:
    """All passes of one scene, its assessment, and what was novel in it."""

    scene: SceneAssessment
    samples: StochasticSamples
    novel: ImageNovelty

    def after(self, settings: PerceptionSettings, passes: int) -> tuple[SceneAssessment, StochasticSamples]:
        """The assessment that so many passes would have given, and these passes."""
        rows = self.samples.pass_index < passes
        samples = StochasticSamples(
            self.samples.boxes[rows],
            self.samples.probabilities[rows],
            self.samples.pass_index[rows],
            passes,
        )
        objects, unstable, uncertainty = observe(samples, settings.cluster)
        scene = replace(
            self.scene,
            objects=self.novel.on(objects),
            unstable=self.novel.on(unstable),
            uncertainty=uncertainty,
            passes=passes,
        )
        return scene, samples


def look(settings: PerceptionSettings, seeds: Sequence[int]) -> Iterator[Seen]:
    """All passes of the rendered scene of each of ``seeds``."""
    detector = load_detector(settings)
    perception = Perception(settings, detector)
    novelty = NoveltyEstimator(settings, detector)
    for seed in seeds:
        image = render(sample_scene(seed)).image
        scene = perception.assess(image)
        features = detector.encode(image)
        mask_seed = image_seed(scene.image_digest, settings.seed)
        samples = detector.sample(features, settings.passes, mask_seed)
        yield Seen(scene, samples, novelty.begin(image)(features))


def main() -> None:
    """Print one line per error and per fixed number of passes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    defaults = PerceptionSettings()
    parser.add_argument("--scenes", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--errors", type=float, nargs="*", default=[defaults.adaptive_error])
    parser.add_argument("--least", type=int, default=defaults.min_passes)
    parser.add_argument("--policy", type=Path, default=share_folder() / "config" / "policy.yaml")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    settings = PerceptionSettings(device="cpu", min_passes=arguments.least)
    policy = Policy.load(arguments.policy)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.scenes)
    rows = table(list(look(settings, seeds)), settings, policy, arguments.errors)
    print(
        "| sampling | passes | outcomes that differ | verdicts that differ | released only early | scenes by passes |"
    )
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.sampling} | {row.mean_passes:.2f} | {row.outcomes_differ} of {row.scenes} "
            f"| {row.verdicts_differ} of {row.objects} | {row.only_early} | {row.by_passes} |"
        )
    if arguments.json:
        with atomic_write(arguments.json, "w") as stream:
            json.dump([asdict(row) for row in rows], stream, indent=2)


def table(
    seen: Sequence[Seen], settings: PerceptionSettings, policy: Policy, errors: Sequence[float]
) -> list[Row]:
    """The lines about ``seen`` scenes."""
    row = partial(_row, seen=seen, policy=policy)
    rows = [
        row(f"adaptive, error {error:g}", stopped=[_stopped(s, settings, policy, error) for s in seen])
        for error in errors
    ]
    rows += [row(f"fixed {n}", stopped=[s.after(settings, n)[0] for s in seen]) for n in (6, 10, 14)]
    courses = [_Course.of(s, settings, policy) for s in seen]
    rows.append(row("known in advance", stopped=[c.scenes[c.stable()] for c in courses]))
    allowed = int(_BUDGET * sum(c.verdicts for c in courses))
    best = _fewest(courses, allowed)
    rows.append(row(f"known in advance, {_BUDGET:.1%} different", stopped=best))
    return rows


def _stopped(seen: Seen, settings: PerceptionSettings, policy: Policy, error: float) -> SceneAssessment:
    taken = 0
    while True:
        taken += step_after(taken, settings.min_passes, settings.passes)
        scene, samples = seen.after(settings, taken)
        if taken == settings.passes or should_stop(
            scene, samples, settings.passes, settings.min_cluster_size, error, lambda s: decision(s, policy)
        ):
            return scene


@dataclass(frozen=True)
class _Course:
    """One scene after each number of passes, and by how much it differs from that after all; ``verdicts`` of the latter."""

    scenes: tuple[SceneAssessment, ...]
    differences: IntArray
    verdicts: int

    @classmethod
    def of(cls, seen: Seen, settings: PerceptionSettings, policy: Policy) -> _Course:
        wanted = judge(seen.scene, policy)
        numbers = range(settings.min_passes, settings.passes)
        scenes = [seen.after(settings, passes)[0] for passes in numbers] + [seen.scene]
        decided = [judge(scene, policy) for scene in scenes]
        differences = [different_verdicts(wanted, d) or int(wanted.outcome != d.outcome) for d in decided]
        return cls(tuple(scenes), np.array(differences), len(wanted.verdicts))

    def stable(self) -> int:
        """Index of the first from which on nothing differs."""
        differing = np.flatnonzero(self.differences)
        return int(differing[-1]) + 1 if len(differing) else 0

    def cheapest(self, price: float) -> int:
        """Index of the one with the fewest passes, where every difference costs ``price`` of them."""
        return int(np.argmin(np.arange(len(self.scenes)) + price * self.differences))


def _fewest(courses: Sequence[_Course], allowed: int) -> list[SceneAssessment]:
    """The scenes with the fewest passes in sum that differ in at most ``allowed`` verdicts, by the price of a difference."""
    for price in np.arange(1.0, 30.0, 0.05):
        chosen = [c.cheapest(float(price)) for c in courses]
        if sum(int(c.differences[i]) for c, i in zip(courses, chosen, strict=True)) <= allowed:
            break
    return [c.scenes[i] for c, i in zip(courses, chosen, strict=True)]


def _row(sampling: str, seen: Sequence[Seen], policy: Policy, stopped: Sequence[SceneAssessment]) -> Row:
    outcomes = objects = verdicts = early_only = 0
    for whole, early in zip((s.scene for s in seen), stopped, strict=True):
        wanted, found = judge(whole, policy), judge(early, policy)
        outcomes += wanted.outcome != found.outcome
        objects += len(wanted.verdicts)
        verdicts += different_verdicts(wanted, found)
        early_only += released_only_in(found, wanted)
    passes, counts = np.unique([s.passes for s in stopped], return_counts=True)
    return Row(
        sampling=sampling,
        mean_passes=float(np.mean([s.passes for s in stopped])),
        scenes=len(seen),
        outcomes_differ=outcomes,
        objects=objects,
        verdicts_differ=verdicts,
        only_early=early_only,
        by_passes=dict(zip(passes.tolist(), counts.tolist(), strict=True)),
    )


def different_verdicts(wanted: SceneDecision, found: SceneDecision) -> int:
    """Objects about which the two decide differently."""
    by_object, elsewhere = differences(wanted, found)
    return sum(by_object) + elsewhere


def differences(wanted: SceneDecision, found: SceneDecision) -> tuple[list[int], int]:
    """Objects about which the two decide differently: at the place of each object of ``found``, and elsewhere.

    Each object of ``wanted`` is compared with the one at its place, and each with another one.
    """
    places = np.array([v.object.box for v in found.verdicts], np.float64).reshape(-1, 4)
    left = list(range(len(places)))
    by_object, elsewhere = [0] * len(places), 0
    for verdict in wanted.verdicts:
        overlaps = iou_matrix(verdict.object.box[None], places)[0]
        best = max(left, key=overlaps.__getitem__, default=-1)
        if best >= 0 and overlaps[best] >= _SAME_PLACE:
            left.remove(best)
            by_object[best] += found.verdicts[best].verdict != verdict.verdict
        elif verdict.verdict is not Verdict.KEEP:
            if len(places) and overlaps.max() >= _BESIDE:
                by_object[int(overlaps.argmax())] += 1
            else:
                elsewhere += 1
    for index in left:
        by_object[index] += found.verdicts[index].verdict is not Verdict.KEEP
    return by_object, elsewhere


def released_only_in(one: SceneDecision, other: SceneDecision) -> int:
    """Objects that ``one`` releases for removal, in a scene that allows it, while ``other`` releases nothing at their place."""
    if one.outcome is not Outcome.WORK:
        return 0
    places = [v.object.box for v in other.removable()] if other.outcome is Outcome.WORK else []
    boxes = np.array(places, np.float64).reshape(-1, 4)
    return sum(not (iou_matrix(v.object.box[None], boxes)[0] >= _SAME_PLACE).any() for v in one.removable())


if __name__ == "__main__":
    main()
