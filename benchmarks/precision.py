# SPDX-License-Identifier: Apache-2.0
"""What a reduced precision changes against float32 with the same masks, on rendered scenes that the weights never saw.

    OMP_NUM_THREADS=1 python -m benchmarks.precision --scenes 100

Printed are, over the objects that both see at the same place: boxes (largest shift of an edge, px), class vectors (largest change
of a probability) and the five metrics (change over the float32 value's standard deviation between objects), each as median and
95th percentile; objects that one of the two does not see; and scenes and objects that the policy decides differently.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from sticker_uq.gate import Policy, judge
from sticker_uq.io.share import share_folder
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import METRICS, ObservedObject, SceneAssessment, SceneDecision, Verdict
from sticker_uq.uncertainty import iou_matrix

FIRST_SEED = 50_000_000

_SAME_PLACE = 0.5


def main() -> None:
    """Print one line per quantity."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--model", default=PerceptionSettings().model)
    parser.add_argument("--weights", default="", help="safetensors file; empty: the packaged one")
    parser.add_argument("--min-size", type=int, default=PerceptionSettings().min_size)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="bfloat16", choices=("tf32", "bfloat16", "float16"))
    parser.add_argument("--policy", type=Path, default=share_folder() / "config" / "policy.yaml")
    arguments = parser.parse_args()
    policy = Policy.load(arguments.policy)
    settings = PerceptionSettings(
        model=arguments.model,
        weights=arguments.weights,
        min_size=arguments.min_size,
        device=arguments.device,
    )
    exact = Perception(settings)
    reduced = Perception(settings.model_copy(update={"precision": arguments.precision}))
    pairs: list[tuple[ObservedObject, ObservedObject]] = []
    alone = outcomes = verdicts = objects = 0
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.scenes):
        image = render(sample_scene(seed)).image
        wanted, found = exact.assess(image), reduced.assess(image)
        same = _pairs(wanted, found)
        pairs += same
        alone += len(wanted.objects) + len(found.objects) - 2 * len(same)
        decided = judge(wanted, policy), judge(found, policy)
        outcomes += decided[0].outcome != decided[1].outcome
        verdicts += different_verdicts(*decided)
        objects += len(decided[0].verdicts)
    print("| change | median | 95th percentile |\n|---|---|---|")
    _line("edge of a box, px", [float(np.abs(a.box - b.box).max()) for a, b in pairs])
    _line("probability", [float(np.abs(a.probabilities - b.probabilities).max()) for a, b in pairs])
    for name in METRICS:
        values = np.array([[getattr(a, name), getattr(b, name)] for a, b in pairs])
        spread = max(float(values[:, 0].std()), 1e-12)
        _line(f"{name.replace('_', ' ')}, deviations", list(np.abs(values[:, 0] - values[:, 1]) / spread))
    print(f"{len(pairs)} objects seen by both, {alone} by one")
    print(f"outcomes that differ: {outcomes} of {arguments.scenes} scenes")
    print(f"verdicts that differ: {verdicts} of {objects}")


def _pairs(wanted: SceneAssessment, found: SceneAssessment) -> list[tuple[ObservedObject, ObservedObject]]:
    left, pairs = list(found.objects), []
    for one in wanted.objects:
        if not left:
            break
        overlaps = iou_matrix(one.box[None], np.array([o.box for o in left]))[0]
        if overlaps.max() >= _SAME_PLACE:
            pairs.append((one, left.pop(int(overlaps.argmax()))))
    return pairs


def different_verdicts(wanted: SceneDecision, found: SceneDecision) -> int:
    """Objects about which the two decide differently; one that only one of them sees counts unless it is left alone."""
    boxes = np.array([v.object.box for v in found.verdicts], np.float64).reshape(-1, 4)
    left = list(range(len(boxes)))
    different = 0
    for verdict in wanted.verdicts:
        overlaps = iou_matrix(verdict.object.box[None], boxes)[0]
        best = max(left, key=overlaps.__getitem__, default=-1)
        if best >= 0 and overlaps[best] >= _SAME_PLACE:
            left.remove(best)
            different += found.verdicts[best].verdict is not verdict.verdict
        else:
            different += verdict.verdict is not Verdict.KEEP
    return different + sum(found.verdicts[index].verdict is not Verdict.KEEP for index in left)


def _line(name: str, changes: list[float]) -> None:
    print(f"| {name} | {np.median(changes):.3g} | {np.percentile(changes, 95):.3g} |")


if __name__ == "__main__":
    main()
