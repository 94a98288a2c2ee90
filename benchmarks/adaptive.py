"""What adaptive passes save and what they change, on rendered scenes that the packaged weights never saw.

    OMP_NUM_THREADS=1 python -m benchmarks.adaptive --scenes 500

Of every scene all T passes are made once. Adaptive sampling then sees them in its own steps, as it would have made them: a pass
does not depend on those made with it. Printed per error probability: passes on average, scenes by number of passes, scenes whose
outcome differs from that of T passes, and objects whose verdict does. An object that only one of the two sees counts as different
unless it is left alone. Then fixed smaller numbers of passes, for comparison, and what a rule would need that knows all passes in
advance: the fewest from which on nothing differs, which no rule can undercut without a difference.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from sticker_uq.datasets import render, sample_scene
from sticker_uq.datasets.files import atomic_write
from sticker_uq.detection import load_detector
from sticker_uq.nodes.perceiving import decision
from sticker_uq.nodes.processes import share_folder
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.pipeline import image_seed
from sticker_uq.perception.sequential import settled, step_after
from sticker_uq.scene import SceneAssessment, SceneDecision, StochasticSamples, Verdict
from sticker_uq.supervision import Policy, judge
from sticker_uq.uncertainty import iou_matrix, observe

FIRST_SEED = 50_000_000
_SAME_PLACE = 0.5


@dataclass(frozen=True)
class Row:
    """One line of the table; ``by_passes`` maps a number of passes to scenes."""

    sampling: str
    mean_passes: float
    scenes: int
    outcomes_differ: int
    objects: int
    verdicts_differ: int
    by_passes: dict[int, int]


@dataclass(frozen=True)
class Seen:
    """All passes of one scene, and its assessment."""

    scene: SceneAssessment
    samples: StochasticSamples


def main() -> None:
    """Print one line per error probability and per fixed number of passes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--errors", type=float, nargs="*", default=[0.1])
    parser.add_argument("--least", type=int, default=PerceptionSettings().min_passes)
    parser.add_argument("--policy", type=Path, default=share_folder() / "config" / "policy.yaml")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    settings = PerceptionSettings(device="cpu", min_passes=arguments.least)
    policy = Policy.load(arguments.policy)
    detector = load_detector(settings)
    perception = Perception(settings, detector)
    seen = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.scenes):
        image = render(sample_scene(seed)).image
        scene = perception.assess(image)
        mask_seed = image_seed(scene.image_digest, settings.seed)
        seen.append(Seen(scene, detector.decode(detector.encode(image), settings.passes, mask_seed)))
    rows = [
        _row(f"adaptive, error {error:g}", seen, policy, [_stopped(s, settings, policy, error) for s in seen])
        for error in arguments.errors
    ]
    rows += [_row(f"fixed {n}", seen, policy, [_after(s, settings, n)[0] for s in seen]) for n in (6, 10, 14)]
    rows.append(_row("known in advance", seen, policy, [_foreseen(s, settings, policy) for s in seen]))
    print("| sampling | passes | outcomes that differ | verdicts that differ | scenes by passes |")
    print("|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.sampling} | {row.mean_passes:.2f} | {row.outcomes_differ} of {row.scenes} "
            f"| {row.verdicts_differ} of {row.objects} | {row.by_passes} |"
        )
    if arguments.json:
        with atomic_write(arguments.json, "w") as stream:
            json.dump([asdict(row) for row in rows], stream, indent=2)


def _after(
    seen: Seen, settings: PerceptionSettings, passes: int
) -> tuple[SceneAssessment, StochasticSamples]:
    rows = seen.samples.pass_index < passes
    samples = StochasticSamples(
        seen.samples.boxes[rows], seen.samples.probabilities[rows], seen.samples.pass_index[rows], passes
    )
    objects, unstable, uncertainty = observe(samples, settings.cluster)
    scene = replace(seen.scene, objects=objects, unstable=unstable, uncertainty=uncertainty, passes=passes)
    return scene, samples


def _stopped(seen: Seen, settings: PerceptionSettings, policy: Policy, error: float) -> SceneAssessment:
    taken = 0
    while True:
        taken += step_after(taken, settings.min_passes, settings.passes)
        scene, samples = _after(seen, settings, taken)
        if taken == settings.passes or settled(
            scene, samples, settings.passes, settings.min_cluster_size, error, lambda s: decision(s, policy)
        ):
            return scene


def _foreseen(seen: Seen, settings: PerceptionSettings, policy: Policy) -> SceneAssessment:
    """The scene after the fewest passes from which on every decision is that of all passes."""
    wanted, found = judge(seen.scene, policy), seen.scene
    for passes in range(settings.passes - 1, settings.min_passes - 1, -1):
        scene = _after(seen, settings, passes)[0]
        decided = judge(scene, policy)
        if decided.outcome != wanted.outcome or different_verdicts(wanted, decided):
            break
        found = scene
    return found


def _row(sampling: str, seen: Sequence[Seen], policy: Policy, stopped: Sequence[SceneAssessment]) -> Row:
    outcomes = objects = verdicts = 0
    for whole, early in zip((s.scene for s in seen), stopped, strict=True):
        wanted, found = judge(whole, policy), judge(early, policy)
        outcomes += wanted.outcome != found.outcome
        objects += len(wanted.verdicts)
        verdicts += different_verdicts(wanted, found)
    passes, counts = np.unique([s.passes for s in stopped], return_counts=True)
    return Row(
        sampling=sampling,
        mean_passes=float(np.mean([s.passes for s in stopped])),
        scenes=len(seen),
        outcomes_differ=outcomes,
        objects=objects,
        verdicts_differ=verdicts,
        by_passes=dict(zip(passes.tolist(), counts.tolist(), strict=True)),
    )


def different_verdicts(wanted: SceneDecision, found: SceneDecision) -> int:
    """Objects about which the two decide differently."""
    first, second = list(wanted.verdicts), list(found.verdicts)
    different = 0
    for verdict in first:
        overlaps = (
            iou_matrix(verdict.object.box[None], np.array([v.object.box for v in second]))[0]
            if second
            else np.zeros(0)
        )
        if len(overlaps) and overlaps.max() >= _SAME_PLACE:
            different += second.pop(int(overlaps.argmax())).verdict != verdict.verdict
        else:
            different += verdict.verdict is not Verdict.KEEP
    return different + sum(v.verdict is not Verdict.KEEP for v in second)


if __name__ == "__main__":
    main()
