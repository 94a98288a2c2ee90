# SPDX-License-Identifier: Apache-2.0
"""Weights for the study's cell: small stickers, and what must not be peeled.

    python -m benchmarks.world train --out out/world

``train`` renders the pictures and trains; an interrupted run goes on. ``measure`` runs weights over laptops of seeds that train
nothing, as rendered for the cell and as large, and counts what is found by size and what else is called a sticker. Frozen
before the test seeds were looked at: a detection is right when it has the class of an object and overlaps it by 0.5; the
threshold on the score is the one with the highest F1 of stickers on the validation pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from sticker_uq.cli.train import stop_on_signal
from sticker_uq.evaluation.executors import mapped
from sticker_uq.io.coco import ANNOTATIONS, EncodedScene, write_coco
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.lab.rendering.scene_sampling import Profile
from sticker_uq.lab.rendering.study_sampling import WIDTH
from sticker_uq.lab.training.checkpoint import STATE
from sticker_uq.lab.training.training import TrainSettings, train
from sticker_uq.scene import FloatArray, IntArray, ObjectClass


@dataclass(frozen=True)
class Part:
    """Pictures of one kind: the first seed, how many, and how they are rendered."""

    first: int
    count: int
    profile: Profile = "study"
    stickers: int | None = None
    size: tuple[int, int] = (640, 536)


TRAINING = {
    "study": Part(1_000_000, 1800),
    "bare": Part(1_100_000, 200, stickers=0),
    "large": Part(1_200_000, 300, "large", size=(640, 480)),
}
VALIDATION = Part(1_300_000, 120)
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
CELL = {
    "stickers, top": {"shorter": (69, 86, 95, 114, 160), "longer": (86, 98, 109, 141, 276)},
    "stickers, open": {"shorter": (52, 70, 81, 99, 140), "longer": (71, 88, 100, 129, 172)},
    "logos, top": {"shorter": (56, 73, 104, 118, 135), "longer": (64, 107, 142, 171, 208)},
    "logos, open": {"shorter": (17, 21, 26, 51, 131), "longer": (49, 82, 89, 119, 159)},
}
"""Sides of the labelled boxes of the study's cell, px of its pictures, at `LEVELS`. They are published test labels: who learns
from pictures rendered by them is no longer blind on that cell.
"""
TEST = {"study": Part(1_400_000, 400), "large": Part(1_500_000, 200, "large", size=(960, 720))}


def _scene(seed: int, part: Part) -> EncodedScene:
    spec = sample_scene(seed, stickers=part.stickers, profile=part.profile)
    return encode_scene(seed, render(spec, part.size))


def rendered(out: Path, name: str, part: Part) -> Path:
    """The COCO folder of a part, rendered unless it is there."""
    folder = out / name
    if not (folder / ANNOTATIONS).exists():
        seeds = range(part.first, part.first + part.count)
        write_coco(folder, mapped(partial(_scene, part=part), seeds, 2, chunksize=8))
    return folder


def _boxes(seed: int, size: tuple[int, int]) -> tuple[str, FloatArray, IntArray]:
    spec = sample_scene(seed, profile="study")
    scene = render(spec, size)
    view = "top" if spec.laptop.view == "lid" else "open"
    return view, scene.boxes * (WIDTH / size[0]), scene.labels


def quantiles(
    seeds: Sequence[int], size: tuple[int, int], jobs: int = 1
) -> dict[str, dict[str, list[float]]]:
    """Those of rendered boxes as in `CELL`; ``size`` of the pictures, of which a pixel is the least difference."""
    sides: dict[str, list[FloatArray]] = {kind: [] for kind in CELL}
    for view, boxes, labels in mapped(partial(_boxes, size=size), seeds, jobs, chunksize=8):
        for name, label in (("stickers", ObjectClass.STICKER), ("logos", ObjectClass.LOGO)):
            own = boxes[labels == label]
            sides[f"{name}, {view}"].append(own[:, 2:] - own[:, :2])
    joined = {kind: np.concatenate(parts) for kind, parts in sides.items()}
    return {
        kind: {
            name: np.quantile(ends(values, axis=1), LEVELS).round(1).tolist()
            for name, ends in (("shorter", np.min), ("longer", np.max))
        }
        for kind, values in joined.items()
    }


def train_weights(options: argparse.Namespace) -> None:
    """Render and train, or go on with it."""
    data = tuple(rendered(options.out, name, part) for name, part in TRAINING.items())
    settings = TrainSettings(
        data=data,
        out=options.out / f"run-{options.seed}",
        val_data=rendered(options.out, "validation", VALIDATION),
        start=options.start,
        epochs=options.epochs,
        batch_size=8,
        learning_rate=options.learning_rate,
        input_size=options.input_size,
        dropout=options.dropout,
        seed=options.seed,
        threads=1,
    )
    with stop_on_signal() as stop:
        train(
            settings,
            resume=(settings.out / STATE).exists(),
            command="python -m benchmarks.world train",
            say=partial(print, flush=True),
            on_epoch=lambda r: print(
                f"epoch {r.epoch}: loss {r.loss:.3f}, logos {r.ap_logo:.3f}, stickers {r.ap_sticker:.3f}, {r.seconds:.0f} s",
                flush=True,
            ),
            stop=stop,
        )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--start", default="packaged")
    training.add_argument("--epochs", type=int, default=4)
    training.add_argument("--learning-rate", type=float, default=1e-3)
    training.add_argument("--input-size", type=int, default=640)
    training.add_argument("--dropout", type=float, default=0.2)
    training.add_argument("--seed", type=int, default=0)
    training.set_defaults(run=train_weights)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
