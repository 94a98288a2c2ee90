# SPDX-License-Identifier: Apache-2.0
"""Trains the packaged patch head on rendered laptops, whose masks the renderer knows.

python scripts/patch_head.py WORK extract FIRST_SEED COUNT
python scripts/patch_head.py WORK train FILE
"""

import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.perception.patches import PatchHead, save_patch_head
from sticker_uq.scene import ObjectClass
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.scene_spec import ThingSpec
from sticker_uq_lab.rendering.things import SIZES

PICTURES = (("study", (980, 820), 0.5), ("study", (1632, 1366), 0.2), ("large", (960, 720), 0.3))
BARE, REACHES = 0.12, 0.35
IN_FRONT = ("hand", "gripper")


def sampled(seed):
    rng = np.random.default_rng((seed, 11))
    profile, size, _ = PICTURES[rng.choice(len(PICTURES), p=[p for *_, p in PICTURES])]
    spec = sample_scene(seed, profile=profile, stickers=0 if rng.random() < BARE else None)
    if rng.random() < REACHES:
        kind = str(rng.choice(IN_FRONT))
        more = ThingSpec(
            kind,
            (rng.uniform(0.1, 0.9), rng.uniform(0.08, 0.67)),
            rng.uniform(*SIZES[kind]) * rng.uniform(0.7, 1.5),
            rng.uniform(0, 360),
            int(rng.integers(2**31)),
        )
        spec = replace(spec, things=(*spec.things, more))
    if len(spec.stickers) > 2 and rng.random() < 0.4:  # as after removals
        for one in rng.permutation([s.id for s in spec.stickers])[: int(rng.integers(1, len(spec.stickers)))]:
            spec = spec.without_sticker(int(one))
    return spec, size


def cells(mask, shape):
    return cv2.resize(mask.astype(np.float32), shape[::-1], interpolation=cv2.INTER_AREA)


def example(seed, detector):
    spec, size = sampled(seed)
    scene = render(spec, size)
    # what a camera sends
    image = cv2.imdecode(
        cv2.imencode(".jpg", scene.image, [cv2.IMWRITE_JPEG_QUALITY, 92])[1], cv2.IMREAD_COLOR
    )
    features = detector.encode(image)
    found = detector.detect(features)
    fine, coarse = (m[0].half().numpy() for m in features.maps[:2])
    shape = fine.shape[1:]
    truth = np.zeros(shape, np.uint8)  # 0 none, 1 sticker, 2 sticker not found, 255 undecided
    # all of a sticker that shows, also where too little is left of it to be labelled
    for one in spec.stickers:
        share = cells(scene.id_map == one.id, shape)
        if share.max() < 0.02:
            continue
        row = np.flatnonzero(scene.ids == one.id)
        seen = True
        if len(row):
            over = iou_matrix(scene.boxes[row], found.boxes)[0] if len(found) else np.zeros(0)
            seen = bool(((over >= 0.5) & (found.probabilities[:, ObjectClass.STICKER] >= 0.3)).any())
        sure = share >= min(0.35, share.max())
        truth[(share > 0) & ~sure & (truth == 0)] = 255
        truth[sure] = 1 if seen and len(row) else 2 if len(row) else 255
    return fine, coarse, truth


def extract(work, first, count):
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    detector = load_detector(DetectorSettings(device="cpu"))
    work.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + count):
        file = work / f"{seed}.npz"
        if not file.exists():
            fine, coarse, truth = example(seed, detector)
            np.savez(work / f".{seed}.tmp.npz", fine=fine, coarse=coarse, truth=truth)
            (work / f".{seed}.tmp.npz").rename(file)


class Examples(torch.utils.data.Dataset):
    """(fine, coarse, truth) of each file, read anew each time: thousands of them do not fit into memory."""

    def __init__(self, files, mirrored):
        self.files, self.mirrored = files, mirrored

    def __len__(self):
        return len(self.files)

    def __getitem__(self, number):
        with np.load(self.files[number]) as held:
            fine, coarse, truth = (torch.from_numpy(held[name]) for name in ("fine", "coarse", "truth"))
        if self.mirrored and torch.rand(()) < 0.5:
            fine, coarse, truth = (part.flip(-1) for part in (fine, coarse, truth))
        return fine.float(), coarse.float(), truth.long()


MISSED = 4.0
"""Weight of a patch of a sticker that one pass does not find, over that of another."""
GAMMA = 2.0


def loss_of(logits: Tensor, truth: Tensor) -> Tensor:
    wanted = ((truth == 1) | (truth == 2)).float()
    weight = torch.where(truth == 2, MISSED, 1.0) * (truth != 255)
    raw = functional.binary_cross_entropy_with_logits(logits[:, 0], wanted, reduction="none")
    wrong = (torch.sigmoid(logits[:, 0]) - wanted).abs()
    return (raw * wrong**GAMMA * weight).sum() / (wanted * weight).sum().clamp_min(50.0)


def area(head, held):
    """How well the highest patch outside of found stickers tells the pictures on which one pass misses a sticker."""
    scores, missing = [], []
    for fine, coarse, truth in held:
        left = torch.sigmoid(head(fine[None], coarse[None]))[0, 0]
        found = functional.max_pool2d((truth == 1)[None].float(), 5, 1, 2)[0] > 0
        missed = truth == 2
        scores.append(float(left[(~found & (truth != 255)) | missed].max()))
        missing.append(bool(missed.any()))
    values, wanted = np.array(scores), np.array(missing)
    bad, good = values[wanted], values[~wanted]
    return float((bad[:, None] > good).mean() + (bad[:, None] == good).mean() / 2), len(bad), len(good)


def train(work, file, epochs=9):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    files = sorted(work.glob("[0-9]*.npz"))
    held, learned = Examples(files[::8], False), Examples([f for n, f in enumerate(files) if n % 8], True)
    fine, coarse, _ = held[0]
    head = PatchHead([len(fine), len(coarse)])
    optimizer = torch.optim.AdamW(head.parameters(), lr=2e-3, weight_decay=1e-3)
    loader = torch.utils.data.DataLoader(learned, batch_size=8, shuffle=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, epochs * len(loader))
    for epoch in range(epochs):
        total = 0.0
        head.train()
        for fine, coarse, truth in loader:
            optimizer.zero_grad()
            loss = loss_of(head(fine, coarse), truth)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        head.eval()
        with torch.inference_mode():
            each = [float(loss_of(head(f[None], c[None]), t[None])) for f, c, t in held]
            found, bad, good = area(head, held)
        print(
            f"epoch {epoch}: {total / len(loader):.3f}, held out {np.mean(each):.3f},"
            f" area {found:.3f} ({bad} pictures with a missed sticker, {good} without)",
            flush=True,
        )
        save_patch_head(head, "ssdlite320_mobilenet_v3_large", file, pictures=len(learned))


if __name__ == "__main__":
    if sys.argv[2] == "extract":
        extract(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        train(Path(sys.argv[1]), Path(sys.argv[3]))
