# SPDX-License-Identifier: Apache-2.0
"""Trains the packaged front head on rendered laptops, whose hands and grippers the renderer knows to the pixel.

python scripts/front_head.py WORK draw FIRST_SEED COUNT
python scripts/front_head.py WORK train FILE
"""

import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sticker_uq.perception.front import (
    FEW,
    FrontHead,
    front_maps,
    front_picture,
    front_probability,
    save_front_head,
)
from sticker_uq.perception.novelty.photo_network import PhotoNetwork, load_photo_network
from sticker_uq_lab.datasets.abnormal import CASES, EXPOSURE, leave_untouched
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.scene_spec import SceneSpec, ThingSpec
from sticker_uq_lab.rendering.things import SIZES, lay_thing

PICTURES = (("study", (392, 328), 0.65), ("large", (384, 288), 0.35))
"""Profile, size px, and share of the pictures."""
BARE, FRONT, UNKNOWN, DEGRADED = 0.2, 0.45, 0.12, 0.12
IN_FRONT = ("hand", "gripper")
BATCH, EPOCHS, DROPPED = 16, 8, 0.1


def sampled(seed: int) -> tuple[SceneSpec, tuple[int, int], np.random.Generator]:
    rng = np.random.default_rng((seed, 11))
    profile, size, _ = PICTURES[rng.choice(len(PICTURES), p=[share for *_, share in PICTURES])]
    spec = sample_scene(seed, profile=profile, stickers=0 if rng.random() < BARE else None)
    things = [thing for thing in spec.things if thing.kind not in IN_FRONT or rng.random() < 0.5]
    if rng.random() < FRONT:
        kind = str(rng.choice(IN_FRONT))
        centre = (rng.uniform(0.1, 0.9), rng.uniform(0.08, 0.67))
        unit = rng.uniform(*SIZES[kind]) * rng.uniform(0.7, 1.5)
        things.append(ThingSpec(kind, centre, unit, rng.uniform(0, 360), int(rng.integers(2**31))))
    camera = replace(spec.camera, noise=spec.camera.noise / 2)  # as after a reduction
    return replace(spec, things=tuple(things), camera=camera), size, rng


def in_front(spec: SceneSpec, size: tuple[int, int]) -> np.ndarray:
    """What of the picture (H, W) shows a hand or a gripper, 0 or 1."""
    shown = np.zeros(size[::-1], np.uint8)
    for thing in spec.things:
        own = np.zeros(size[::-1], np.uint8)
        lay_thing(np.zeros((*size[::-1], 3), np.uint8), thing, own)
        shown[own > 127] = thing.kind in IN_FRONT
    return shown


def draw(work: Path, first: int, count: int) -> None:
    cv2.setNumThreads(1)
    work.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + count):
        file = work / f"{seed}.npz"
        if file.exists():
            continue
        spec, size, rng = sampled(seed)
        laptop = render(spec, size)
        scene, drawn = leave_untouched(laptop.image.copy(), laptop.boxes, laptop.labels), rng.random()
        if drawn < UNKNOWN:
            scene = CASES["unknown-object"](scene, rng)
        elif drawn < UNKNOWN + DEGRADED:
            kind = str(rng.choice([name for name in EXPOSURE if name not in IN_FRONT]))
            scene = EXPOSURE[kind](scene, rng)
        picture = front_picture(np.ascontiguousarray(scene.image))
        shape = (picture.shape[1] // 8, picture.shape[0] // 8)
        share = cv2.resize(in_front(spec, size).astype(np.float32), shape, interpolation=cv2.INTER_AREA)
        np.savez(work / f".{seed}.tmp.npz", picture=picture, share=share)
        (work / f".{seed}.tmp.npz").rename(file)


def examples(work: Path, network: PhotoNetwork) -> list[tuple[Tensor, Tensor]]:
    """Maps (C, h, w) in half precision, and which share of each cell shows a hand or a gripper (h, w), of each picture."""
    found = []
    for file in sorted(work.glob("[0-9]*.npz")):
        with np.load(file) as held:
            maps = front_maps(network, held["picture"])[0]
            share = functional.adaptive_avg_pool2d(
                torch.from_numpy(held["share"])[None, None], maps.shape[-2:]
            )
        found.append((maps.half(), share[0, 0]))
    return found


def train(pictures: list[tuple[Tensor, Tensor]], network: str, file: Path) -> None:
    torch.manual_seed(0)
    held, learned = pictures[::10], [one for n, one in enumerate(pictures) if n % 10]
    shapes: dict[tuple[int, ...], list[int]] = {}
    for number, (maps, _) in enumerate(learned):
        shapes.setdefault(tuple(maps.shape), []).append(number)
    head = FrontHead()
    head.network = network
    batches = [len(numbers) // BATCH + 1 for numbers in shapes.values()]
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, EPOCHS * sum(batches))
    for epoch in range(EPOCHS):
        head.train()
        chosen = [
            part
            for numbers in shapes.values()
            for part in torch.tensor(numbers)[torch.randperm(len(numbers))].split(BATCH)
        ]
        losses = []
        for number in torch.randperm(len(chosen)).tolist():
            maps, share = (
                torch.stack(part) for part in zip(*(learned[i] for i in chosen[number].tolist()), strict=True)
            )
            told = functional.dropout2d(head.scaled(maps.float()), DROPPED)
            optimizer.zero_grad()
            loss = functional.binary_cross_entropy_with_logits(head.layers(told)[:, 0], (share > 0.4).float())
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
        head.eval()
        with torch.no_grad():
            value = np.array([front_probability(head(maps[None].float())) for maps, _ in held])
        cells = np.array([float((share > 0.5).sum()) for _, share in held])
        there, free = value[cells >= FEW], value[np.array([float(share.max()) for _, share in held]) == 0]
        print(
            f"epoch {epoch}: loss {np.mean(losses):.4f}, of {len(there)} and {len(free)} held out: area "
            f"{(there[:, None] > free).mean():.4f}, lowest {np.sort(there)[:5].round(2)}, highest {np.sort(free)[-5:].round(2)}",
            flush=True,
        )
    save_front_head(head, file, pictures=len(learned))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[2] == "draw":
        draw(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        photo = load_photo_network()
        train(examples(Path(sys.argv[1]), photo), photo.hash, Path(sys.argv[3]))
