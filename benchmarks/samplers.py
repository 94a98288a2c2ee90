# SPDX-License-Identifier: Apache-2.0
"""Monte-Carlo dropout beside other samplers at equal cost: which uncertainty tells wrong objects from right ones.

    OMP_NUM_THREADS=1 python -m benchmarks.samplers --scenes 100 [--members WEIGHTS ...]

Rendered laptops that the weights never saw, every second one blurred, dark or noisy. The cost of T = 20 dropout passes is
measured in processor time on the first scenes; test-time augmentation gets as many views as cost the same (at least three, which
clustering needs), and in another row as many as there are passes. Of the networks given with `--members` the first ones that cost
as much as the passes (at least three) make an ensemble, and all of them another; dropout passes of each of them alone tell what
the networks differ in, apart from how they are sampled. All samples are clustered and measured by the same code. An object is
right when a labelled one of its class overlaps it by 0.5 or more. Printed: processor time per image, objects and wrong ones,
labelled objects that were found, AUROC of four uncertainties and of one minus the score for wrong objects, Brier score of the
score as a probability to be right, and its expected calibration error.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sticker_uq.detection import DetectorSettings, StochasticDetector, load_detector, load_members
from sticker_uq.detection.samplers import Ensemble, Sampler, TestTimeAugmentation
from sticker_uq.evaluation.metrics.probability_quality import calibration_error
from sticker_uq.evaluation.metrics.statistics import area_under_roc
from sticker_uq.lab.corruptions import TRANSFORMATIONS, LabelledPicture, transform
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.uncertainty import iou_matrix, observe

FIRST_SEED = 60_000_000
CIRCUMSTANCES = ("motion_blur", "low_light", "sensor_noise")
SIGNALS = ("variation_ratio", "shannon_entropy", "mutual_information", "relative_total_variance")
_OVERLAP = 0.5
_TIMED = 5
_LEAST = 3  # samples that clustering needs


@dataclass
class Seen:
    """What one sampler said about all scenes."""

    milliseconds: list[float] = field(default_factory=list)
    wrong: list[bool] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    signals: list[list[float]] = field(default_factory=list)
    found: int = 0
    labelled: int = 0

    def add(self, picture: LabelledPicture, sampler: Sampler[Any], passes: int, seed: int) -> None:
        """Look at one scene."""
        started = time.process_time()
        samples = sampler.sample(sampler.encode(picture.image), passes, seed)
        self.milliseconds.append((time.process_time() - started) * 1e3)
        objects = [o for o in observe(samples)[0] if o.label]
        boxes = np.array([o.box for o in objects]).reshape(-1, 4)
        overlaps = iou_matrix(boxes, picture.boxes)
        same = np.array([o.label for o in objects]).reshape(-1, 1) == np.asarray(picture.labels)[None]
        right = (overlaps >= _OVERLAP) & same
        self.wrong += (~right.any(axis=1)).tolist()
        self.scores += [float(o.score) for o in objects]
        self.signals += [[getattr(o, name) for name in SIGNALS] for o in objects]
        self.found += int(right.any(axis=0).sum())
        self.labelled += len(picture.labels)

    def line(self, name: str) -> str:
        """The row of the table."""
        wrong, scores = np.array(self.wrong, bool), np.array(self.scores)
        columns = np.column_stack([np.array(self.signals).reshape(-1, len(SIGNALS)), 1 - scores])
        areas = [area_under_roc(column[~wrong], column[wrong]) for column in columns.T]
        brier = float(np.mean((scores - ~wrong) ** 2))
        found, cost = self.found / self.labelled, np.median(self.milliseconds)
        return (
            f"| {name} | {cost:.0f} | {len(wrong)} | {int(wrong.sum())} | {found:.1%} "
            f"| {' | '.join(f'{a:.3f}' for a in areas)} | {brier:.4f} | {calibration_error(scores, ~wrong):.4f} |"
        )


def main() -> None:
    """Print one row per sampler."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--model", default=DetectorSettings().model)
    parser.add_argument("--weights", default="", help="of the sampled model; empty: the packaged ones")
    parser.add_argument("--members", nargs="*", default=[], help="weights of an ensemble of the same model")
    arguments = parser.parse_args()
    settings = DetectorSettings(model=arguments.model, weights=arguments.weights, device="cpu")
    detector = load_detector(settings)
    augmented = TestTimeAugmentation(detector)
    views = _views_for(detector, augmented, settings.passes)
    samplers: list[tuple[str, Sampler[Any], int]] = [
        (f"dropout, {settings.passes} passes", detector, settings.passes),
        (f"test-time augmentation, {views} views", augmented, views),
        (f"test-time augmentation, {settings.passes} views", augmented, settings.passes),
    ]
    samplers += _ensembles(settings, detector, arguments.members)
    seen = {name: Seen() for name, _, _ in samplers}
    for number in range(arguments.scenes):
        picture = _picture(number)
        for name, sampler, passes in samplers:
            seen[name].add(picture, sampler, passes, number)
    names = [name.replace("_", " ") for name in SIGNALS]
    print(
        f"| sampler | ms | objects | wrong | found | {' | '.join(f'AUROC {n}' for n in names)} | AUROC 1 - score | Brier | ECE |"
    )
    print("|---" * (8 + len(SIGNALS)) + "|")
    for name in seen:
        print(seen[name].line(name))


def _ensembles(
    settings: DetectorSettings, detector: StochasticDetector, files: list[str]
) -> list[tuple[str, Sampler[Any], int]]:
    """Ensembles of the weights in ``files``, and each of them with dropout."""
    if not files:
        return []
    members = load_members(settings, files)
    rows: list[tuple[str, Sampler[Any], int]] = []
    everyone = Ensemble(members)
    costs = Seen(), Seen()
    for number in range(_TIMED + 1):
        costs[0].add(_picture(number), detector, settings.passes, number)
        costs[1].add(_picture(number), everyone, len(members), number)
    dropout, whole = (float(np.median(cost.milliseconds[1:])) for cost in costs)
    for count in sorted({max(_LEAST, int(dropout / (whole / len(members)))), len(members)}):
        if count <= len(members):
            rows.append((f"ensemble of {count}", Ensemble(members[:count]), count))
    return rows + [
        (f"dropout, {settings.passes} passes of member {number}", member, settings.passes)
        for number, member in enumerate(members, 1)
    ]


def _picture(number: int) -> LabelledPicture:
    spec = sample_scene(FIRST_SEED + number)
    scene = render(spec)
    plain = LabelledPicture.of(scene.image, scene.boxes, scene.labels, scene=spec)
    if number % 2 == 0:
        return plain
    circumstance = CIRCUMSTANCES[number // 2 % len(CIRCUMSTANCES)]
    return transform(plain, circumstance, TRANSFORMATIONS[circumstance].ladder[2], number)


def _views_for(detector: Any, augmented: Sampler[Any], passes: int) -> int:
    """As many views as cost at most what ``passes`` dropout passes cost, at least 3."""
    costs = Seen(), Seen()
    for number in range(_TIMED + 1):
        costs[0].add(_picture(number), detector, passes, number)
        costs[1].add(_picture(number), augmented, 10, number)
    dropout, ten = (float(np.median(cost.milliseconds[1:])) for cost in costs)
    return max(int(dropout / (ten / 10)), _LEAST)


if __name__ == "__main__":
    main()
