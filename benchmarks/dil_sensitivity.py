# SPDX-License-Identifier: Apache-2.0
"""How well each way to measure what no box explains tells a scene with a missed sticker from one without.

    python -m benchmarks.dil_sensitivity --scenes 150

Every scene is rendered without one of its stickers, and with it made hard to see (small, faint or blurred). It counts as missed
where no detection of score 0.5 lies on it. Printed are areas under the ROC curve: scenes with a missed sticker against the
scenes without it, and the same for a sticker whose detection is deleted from the list of boxes, with 95 % bootstrap intervals
over scenes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from typing import Any, get_args

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from sticker_uq.detection import load_detector
from sticker_uq.dil.regions import unexplained_objectness
from sticker_uq.dil.saliency import activation_maps, enlarge
from sticker_uq.dil.score import distinctive_localization
from sticker_uq.dil.settings import Technique
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.perception import PerceptionSettings
from sticker_uq.uncertainty import observe

_PREDICTED = 0.5
_SMALL = 45.0  # px, root of the area of what counts as a small sticker


def hard_sticker(
    seed: int, stickers: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]] | None:
    """Picture without one sticker, with it made hard to see, with it as it is, and its box; None if it is not visible.

    The scene has ``stickers`` in all, or 1 to 6.
    """
    rng = np.random.default_rng(seed)
    spec = sample_scene(seed, stickers=stickers or seed % 6 + 1)
    chosen = spec.stickers[int(rng.integers(len(spec.stickers)))].id
    bare, plain = render(spec.without_sticker(chosen)).image, render(spec)
    way, strength = int(rng.integers(3)), float(rng.uniform())
    shown = plain
    if way == 0:
        factor = 0.25 + 0.3 * strength
        smaller = tuple(
            replace(s, width=s.width * factor, height=s.height * factor) if s.id == chosen else s
            for s in spec.stickers
        )
        shown = render(replace(spec, stickers=smaller))
        hard = shown.image
    else:
        part = 0.12 + 0.3 * strength if way == 1 else 0.35 + 0.6 * strength
        there = (np.abs(plain.image.astype(int) - bare).max(axis=2) > 12).astype(np.float32)
        mask = cv2.GaussianBlur(cv2.dilate(there, np.ones((9, 9))), (0, 0), 4)[..., None] * part
        seen = plain.image if way == 1 else cv2.GaussianBlur(plain.image, (0, 0), 6 + 10 * strength)
        hard = np.round(seen * mask + bare * (1 - mask)).astype(np.uint8)
    if chosen not in shown.ids or chosen not in plain.ids:
        return None
    return bare, hard, plain.image, shown.boxes[list(shown.ids).index(chosen)]


def lies_on(box: NDArray[Any], boxes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of ``boxes`` (N, 4) hold the centre of ``box`` (4,) or overlap it by an IoU of 0.3."""
    corners = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    shared = np.clip(corners[1] - corners[0], 0, None).prod(axis=1)
    union = (box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - shared
    centre = (box[:2] + box[2:]) / 2
    holds = ((boxes[:, :2] <= centre) & (centre <= boxes[:, 2:])).all(axis=1)
    return np.asarray(holds | (shared / union > 0.3))


class Scores:
    """All scores of one picture for any list of predicted boxes."""

    def __init__(self, detector: Any, image: NDArray[np.uint8], settings: PerceptionSettings) -> None:
        features = detector.encode(image)
        self.deterministic = detector.deterministic_pass(features)
        found = self.deterministic.detections
        self.predicted = found.boxes[found.scores >= _PREDICTED]
        objects, unstable, _ = observe(detector.sample(features, settings.passes, 1), settings.cluster)
        self.dropout = {
            "MC dropout: largest Shannon entropy": max((o.shannon_entropy for o in objects), default=0.0),
            "MC dropout: largest mutual information": max(
                (o.mutual_information for o in objects), default=0.0
            ),
            "MC dropout: objects seen in too few passes": float(len(unstable)),
        }
        self.maps = {}
        for technique in get_args(Technique):
            deterministic = detector.deterministic_pass(features)
            self.maps[technique] = activation_maps(deterministic, technique)

    def measure(self, predicted: NDArray[np.float32]) -> dict[str, float]:
        """Each score by its name."""
        found = unexplained_objectness(self.deterministic, predicted, 1.0)
        values = {"unexplained objectness": found.objectness}
        features = self.deterministic.features[0]
        width, height = features.image_size
        for technique, levels in self.maps.items():
            for name, chosen, shrink in (
                ("all levels", levels, 1),
                ("all levels, picture of a quarter", levels, 4),
                ("finest level", levels[:1], 1),
            ):
                small = replace(features, image_size=(width // shrink, height // shrink))
                complete, background, dil = distinctive_localization(
                    enlarge(chosen, small), predicted / shrink
                )
                values[f"DiL, {technique}, {name}"] = dil if complete > 0 else 0.0
                if name == "all levels":
                    values[f"BL, {technique}, {name}"] = background
        return values


def area(clean: list[float], missed: list[float]) -> str:
    """Area under the ROC curve with its 95 % bootstrap interval."""
    if not clean or not missed:
        return "-"
    a, b = np.array(clean), np.array(missed)
    truth = np.repeat([0, 1], [len(a), len(b)])
    rng = np.random.default_rng(0)
    drawn = [
        roc_auc_score(truth, np.concatenate([rng.choice(a, len(a)), rng.choice(b, len(b))]))
        for _ in range(300)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{roc_auc_score(truth, np.concatenate([a, b])):.2f} ({low:.2f}-{high:.2f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=150)
    parser.add_argument("--seed", type=int, default=70_000)
    parser.add_argument("--weights", default="")
    parser.add_argument("--model", default=PerceptionSettings().model)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = PerceptionSettings(model=arguments.model, weights=arguments.weights, device="cpu")
    detector = load_detector(settings)
    groups: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(group: str, values: dict[str, float]) -> None:
        for name, value in values.items():
            groups[group][name].append(value)

    for seed in range(arguments.seed, arguments.seed + arguments.scenes):
        made = hard_sticker(seed)
        if made is None:
            continue
        bare, hard, plain, box = made
        scores = Scores(detector, bare, settings)
        note("without", scores.measure(scores.predicted) | scores.dropout)
        scores = Scores(detector, hard, settings)
        if not lies_on(box, scores.predicted).any():
            values = scores.measure(scores.predicted) | scores.dropout
            note("missed", values)
            if float((box[2:] - box[:2]).prod()) ** 0.5 < _SMALL:
                note("small", values)
        scores = Scores(detector, plain, settings)
        note("seen", scores.measure(scores.predicted))
        note("deleted", scores.measure(scores.predicted[~lies_on(box, scores.predicted)]))

    counts = {name: len(group["unexplained objectness"]) for name, group in groups.items()}
    print(f"{arguments.model}: scenes {counts}")
    print("| score | missed | missed and small | detection deleted | median without |")
    print("|---|---|---|---|---|")
    for name, clean in groups["without"].items():
        cells = [area(clean, groups[g][name]) for g in ("missed", "small")]
        cells.append(area(groups["seen"][name], groups["deleted"][name]))
        print(f"| {name} | {' | '.join(cells)} | {np.median(clean):.3g} |", flush=True)


if __name__ == "__main__":
    main()
