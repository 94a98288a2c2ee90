# SPDX-License-Identifier: Apache-2.0
"""Trains the packaged photo weights on, from what scripts/photo_start.py read:

    python scripts/photo_weights.py START PHOTOGRAPHS OUT [--scenes 400]

Crops of rendered laptops are told apart as sticker, logo, or neither (residue, prints, foreign objects, other places), while
the features of photographs stay what they were: START sees crops of the folder PHOTOGRAPHS too, whose licence has to allow it.
Some of the stickers and logos lie on such a photograph, so that being drawn does not tell a sticker.

OUT keeps crops and the state; the same call resumes. OUT/photo.safetensors is written at the end of every SAVED scenes.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from sticker_uq.perception.novelty.photo_network import (
    FEATURES,
    SIDE,
    PhotoNetwork,
    photo_crop,
    photo_input,
    pool_maps,
    read_photo_network,
    save_photo_network,
)  # fmt: skip
from sticker_uq.scene import ObjectClass, Rng
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.datasets.abnormal import CASES, EXPOSURE, leave_untouched
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import with_prints

SEED = 171_000_000
"""First seed of the laptops, which are used for nothing else."""
PICTURES = (("study", (1224, 1024)), ("study", (960, 804)), ("large", (960, 720)))
KEPT, ROOM = 208, 1.3
"""Px of a kept crop, and how much more it shows than one that is learned from."""
HELD_OUT = 8
"""Of every so many laptops one is not learned from."""
STEPS, RENDERED, REAL = 3, 12, 6
"""Per laptop: steps, and in a batch of each crops of laptops and of photographs."""
RATE, OF_HEAD, DECAY, KEEP = 1e-4, 3e-4, 1e-4, 4.0
"""Learning rates, the decay of weights, and what keeping the features counts beside telling crops apart."""
ALONE = 0.15
"""Share of the steps in which the linear layer on the features learns alone."""
FROZEN = 7
"""First blocks that are not trained: edges and colours are the same everywhere."""
SAVED = 20


def crops_of(number: int, photographs: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Crops (n, KEPT, KEPT, 3) and classes (n,) of laptop ``number``."""
    rng = np.random.default_rng((SEED, number))
    profile, size = PICTURES[int(rng.integers(len(PICTURES)))]
    spec = sample_scene(SEED + number, profile=profile)
    kind = rng.random()
    others = [np.zeros((0, 4))]
    if kind < 0.15 and len(spec.stickers) > 1:
        laptop, printed = with_prints(spec, float(rng.uniform(0.4, 0.9)), size)
        whole = render(spec, size)
        others.append(whole.boxes[np.isin(whole.ids, printed)])
    else:
        laptop = render(spec, size)
    scene = leave_untouched(laptop.image.copy(), laptop.boxes, laptop.labels)
    plain = kind < 0.4
    if not plain:
        cases = CASES if kind < 0.75 else EXPOSURE
        names = [name for name in cases if name != "occlusion-pasted"]
        if len(scene.boxes) == 0:
            names = [name for name in names if name not in ("occlusion", "unknown-sticker")]
        scene = cases[str(rng.choice(names))](scene, rng)
        if not any("sticker" in kind for kind in scene.kinds):
            others.append(scene.added)
    image, boxes = np.ascontiguousarray(scene.image), scene.boxes
    height, width = image.shape[:2]
    crops, classes = [], []
    for index, (box, label) in enumerate(zip(boxes, scene.labels, strict=True)):
        moved = box + rng.normal(0, 0.06, 4) * np.tile(box[2:] - box[:2], 2)
        crop = photo_crop(image, moved, KEPT, ROOM)
        if plain and rng.random() < 0.5:
            mask = photo_crop(
                np.repeat((laptop.id_map == laptop.ids[index]).astype(np.uint8)[..., None] * 255, 3, 2),
                moved,
                KEPT,
                ROOM,
            )
            share = cv2.GaussianBlur(mask, (0, 0), 0.8).astype(np.float32) / 255
            crop = np.rint(crop * share + window(photographs, rng, KEPT) * (1 - share)).astype(np.uint8)
        crops.append(crop)
        classes.append(int(label))
    sides = (boxes[:, 2:] - boxes[:, :2]) if len(boxes) else np.full((1, 2), 0.06 * width)
    places = [
        np.concatenate([c - s / 2, c + s / 2])
        for c, s in (
            (
                rng.uniform(0.05, 0.95, 2) * (width, height),
                sides[rng.integers(len(sides))] * rng.uniform(0.5, 2.0),
            )
            for _ in range(6)
        )
    ]
    beside = [
        box
        + rng.choice([-1, 1])
        * rng.uniform(0.55, 0.9)
        * (box[2:] - box[:2])[[0, 1, 0, 1]]
        * rng.permutation([1, 0])[[0, 1, 0, 1]]
        for box in boxes[:4]
    ]
    for place in [*np.concatenate(others), *places, *beside]:
        if not len(boxes) or iou_matrix(place[None].astype(np.float32), boxes).max() < 0.3:
            crops.append(photo_crop(image, place, KEPT, ROOM))
            classes.append(int(ObjectClass.BACKGROUND))
    crops += [window(photographs, rng, KEPT) for _ in range(2)]
    classes += [int(ObjectClass.BACKGROUND)] * 2
    return np.array(crops), np.array(classes)


def window(photographs: list[Path], rng: Rng, side: int) -> np.ndarray:
    """Some part (side, side, 3) of some photograph."""
    image = cv2.imread(str(photographs[int(rng.integers(len(photographs)))]))
    height, width = image.shape[:2]
    edge = int(rng.uniform(0.12, 1.0) * min(height, width))
    y, x = int(rng.integers(height - edge + 1)), int(rng.integers(width - edge + 1))
    method = cv2.INTER_AREA if edge > side else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image[y : y + edge, x : x + edge], (side, side), interpolation=method))


def varied(crop: np.ndarray, rng: Rng) -> np.ndarray:
    """A crop (SIDE, SIDE, 3) of a kept one, as another camera, lens and light show it."""
    edge = int(KEPT / ROOM * rng.uniform(0.85, 1.2))
    room = KEPT - edge
    y, x = (int(np.clip(room / 2 + rng.normal(0, 0.04 * edge), 0, room)) for _ in range(2))
    method = cv2.INTER_AREA if edge > SIDE else cv2.INTER_LINEAR
    part = cv2.resize(crop[y : y + edge, x : x + edge], (SIDE, SIDE), interpolation=method)
    part = part[:, :: rng.choice([-1, 1])]
    light = part.astype(np.float32) * rng.uniform(0.75, 1.25) * rng.uniform(0.88, 1.12, 3) + rng.uniform(
        -20, 20
    )
    if rng.random() < 0.4:
        light = cv2.GaussianBlur(light, (0, 0), rng.uniform(0.4, 1.8))
    if rng.random() < 0.3:
        light = light + rng.normal(0, rng.uniform(1, 7), light.shape)
    part = np.clip(np.rint(light), 0, 255).astype(np.uint8)
    if rng.random() < 0.6:
        _, packed = cv2.imencode(".jpg", part, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(30, 92))])
        part = cv2.imdecode(packed, cv2.IMREAD_COLOR)
    return np.ascontiguousarray(part)


def kept(out: Path, number: int, photographs: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`crops_of`, from the file of an earlier call if there is one."""
    file = out / "crops" / f"{number:05d}.npz"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        crops, classes = crops_of(number, photographs)
        with file.with_suffix(".part").open("wb") as stream:
            np.savez_compressed(stream, crops=crops, classes=classes)
        os.replace(file.with_suffix(".part"), file)
    found = np.load(file)
    return found["crops"], found["classes"]


class Learner(nn.Module):
    def __init__(self, start: Path) -> None:
        super().__init__()
        self.network, self.head = read_photo_network(start), nn.Linear(FEATURES, 3)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.network.features[:FROZEN].requires_grad_(False)


def reach(
    learner: Learner,
    before: PhotoNetwork,
    spread: torch.Tensor,
    crops: np.ndarray,
    classes: np.ndarray,
    real: np.ndarray,
) -> str:
    """How well held-out crops are told apart, and how far the features of photographs moved, in spreads of theirs."""
    with torch.inference_mode():
        found = [
            learner.head(pool_maps(learner.network(photo_input(part))) / spread)
            for part in np.array_split(crops, -(-len(crops) // 32))
        ]
        called = torch.cat(found).argmax(1).numpy()
        moved = (
            pool_maps(learner.network(photo_input(real))) - pool_maps(before(photo_input(real)))
        ) / spread
    stickers = classes == ObjectClass.STICKER
    return (
        f"held out: {len(classes)} crops, {np.mean(called == classes):.3f} right, stickers {np.mean(called[stickers] == 2):.3f}, "
        f"others called sticker {np.mean(called[~stickers] == 2):.3f}; photographs moved by "
        f"{float(moved.square().mean().sqrt()):.3f}"
    )


def train(start: Path, photographs: list[Path], out: Path, scenes: int) -> Iterator[str]:
    torch.manual_seed(0)
    learner, before = Learner(start), read_photo_network(start).requires_grad_(False)
    rates = [
        {"params": [p for p in learner.network.parameters() if p.requires_grad], "lr": RATE},
        {"params": learner.head.parameters(), "lr": OF_HEAD},
    ]
    optimizer = torch.optim.AdamW(rates, weight_decay=DECAY)
    steps, alone = STEPS * scenes, ALONE * STEPS * scenes

    def falling(step: int) -> float:
        return float(max(0.02, 0.5 + 0.5 * np.cos(np.pi * min(1.0, step / steps))))

    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, [lambda step: falling(step) * float(np.clip((step - alone) / 60, 0, 1)), falling]
    )
    rng = np.random.default_rng(SEED)
    with torch.inference_mode():
        spread = (
            pool_maps(
                before(photo_input(np.stack([window(photographs, rng, SIDE) for _ in range(128)])))
            ).std(0)
            + 0.05
        )
    spread, real = spread.clone(), np.stack([window(photographs, rng, SIDE) for _ in range(32)])
    state, first = out / "state.pt", 0
    if state.exists():
        saved = torch.load(state, weights_only=True)
        learner.load_state_dict(saved["learner"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        first = saved["scene"]
    pool, held = [], []
    for number in range(first):
        (held if number % HELD_OUT == 0 else pool).append(kept(out, number, photographs))
    total = 0.0
    for number in range(first, scenes):
        (held if number % HELD_OUT == 0 else pool).append(kept(out, number, photographs))
        for step in range(STEPS if pool else 0):
            rng = np.random.default_rng((SEED, number, step))
            # the newest laptop and any of the others, classes alike
            chosen = [
                pool[-1 if n < RENDERED // 4 else int(rng.integers(len(pool)))] for n in range(RENDERED)
            ]
            drawn = [
                (crops, labels, rng.choice(np.flatnonzero(labels == rng.choice(np.unique(labels)))))
                for crops, labels in chosen
            ]
            batch = np.stack([varied(crops[at], rng) for crops, _, at in drawn])
            truth = torch.tensor([int(labels[at]) for _, labels, at in drawn])
            pictures = np.stack([varied(window(photographs, rng, KEPT), rng) for _ in range(REAL)])
            ready = photo_input(np.concatenate([batch, pictures]))
            found = pool_maps(learner.network(ready)) / spread
            with torch.no_grad():
                known = pool_maps(before(ready[RENDERED:])) / spread
            loss = F.cross_entropy(
                learner.head(found[:RENDERED]), truth, label_smoothing=0.02
            ) + KEEP * F.mse_loss(found[RENDERED:], known)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) / (STEPS * SAVED)
        if (number + 1) % SAVED == 0 or number + 1 == scenes:
            crops, classes = (np.concatenate(part) for part in zip(*held, strict=True))
            fixed = np.random.default_rng(SEED)
            crops = np.stack([varied(crop, fixed) for crop in crops])
            yield f"laptop {number + 1} of {scenes}: loss {total:.3f}; {reach(learner, before, spread, crops, classes, real)}"
            total = 0.0
            content = {
                "learner": learner.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "scene": number + 1,
            }
            torch.save(content, state.with_suffix(".part"))
            os.replace(state.with_suffix(".part"), state)
            save_photo_network(
                learner.network, out / "photo.safetensors", start=before.hash, laptops=number + 1
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("start", "photographs", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--scenes", type=int, default=400)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    pictures = sorted(
        p for p in asked.photographs.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png")
    )
    if not pictures:
        sys.exit(f"{asked.photographs}: no photographs, expected JPEG or PNG files")
    asked.out.mkdir(parents=True, exist_ok=True)
    for line in train(asked.start, pictures, asked.out, asked.scenes):
        print(line, flush=True)
