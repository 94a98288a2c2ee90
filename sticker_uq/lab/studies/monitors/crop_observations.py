# SPDX-License-Identifier: Apache-2.0
"""Everything that monitors read from the study's classifier of crops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional as F

from sticker_uq.detection.kernels.threads import single_thread
from sticker_uq.monitors import Objects
from sticker_uq.monitors.crop_network import CropNetwork, class_vectors, parts_of
from sticker_uq.scene import FloatArray, IntArray


@single_thread()
@torch.no_grad()
def observe_crops(
    model: CropNetwork,
    crops: FloatArray,
    passes: int,
    seed: int,
    members: Sequence[CropNetwork] = (),
    labels: IntArray | None = None,
) -> Objects:
    """All that a study's monitors read of ``crops``: ``passes`` stochastic passes with masks of ``seed``, an ensemble for
    ``members``.
    """
    logits, layers = [], []
    for part in parts_of(crops):
        *maps, hidden = model.activations(part, dropout=False)
        pooled = [F.adaptive_avg_pool2d(level, 2).flatten(1) for level in maps]
        layers.append([level.double().numpy() for level in (*pooled, hidden)])
        logits.append(model.last(hidden).double())
    samples = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(passes):
            drawn = [torch.softmax(model(part, dropout=True), dim=1) for part in parts_of(crops)]
            samples.append(torch.cat(drawn).double().numpy())
    found = torch.cat(logits)
    levels = tuple(np.concatenate(level) for level in zip(*layers, strict=True))
    return Objects(
        probabilities=torch.softmax(found, dim=1).numpy(),
        logits=found.numpy(),
        samples=np.stack(samples),
        members=np.stack([class_vectors(member, crops) for member in members]) if members else None,
        features=levels[-1],
        layers=levels,
        crops=np.asarray(crops, np.float32),
        labels=labels,
    )
