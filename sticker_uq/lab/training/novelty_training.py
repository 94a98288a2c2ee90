# SPDX-License-Identifier: Apache-2.0
"""Training of the novelty network on clean labelled pictures with random shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.detection import StochasticDetector
from sticker_uq.io.coco import LabelledImage
from sticker_uq.lab.training.novelty_samples import Sample, sample
from sticker_uq.novelty.network import FARTHEST, NoveltyNetwork, input_size, network_input
from sticker_uq.scene import InvalidInput

EPOCHS, LEAST_STEPS = 3, 400
"""Of a training whose epochs nobody chose: few pictures take more epochs, for the rate rises over the first hundred steps."""
_MOBILE = "ssdlite320_mobilenet_v3_large"
_BATCH = 8
_AHEAD = 3
_RATE, _DECAY, _WARM_UP = 2e-3, 1e-2, 100
_EMPHASIS = (3.0, 1.0, 1.0, 3.0)
"""Loss weights of positive cells for foreign object, logo, sticker and sticker centre, relative to negative ones."""
_SHARES = (1.0, 1.0, 1.0, 2.0)
"""Of these in the loss."""
_KEPT = 4
"""Frozen blocks of a pretrained encoder: down to 4 px per cell."""
_GENTLE = 0.3
"""Learning rate of its other blocks relative to that of the new layers."""


def mobile_blocks(detector: StochasticDetector) -> nn.Sequential:
    """The MobileNetV3 blocks of ``detector`` that novelty training starts from; InvalidInput where it has none."""
    stages = getattr(getattr(detector.model, "backbone", None), "features", None)
    blocks = stages[0] if isinstance(stages, nn.Sequential) else None
    if detector.name != _MOBILE or not isinstance(blocks, nn.Sequential):
        raise InvalidInput(f"model {detector.name!r} has no MobileNetV3 to start from, expected {_MOBILE!r}")
    return blocks


def epochs_for(pictures: int) -> int:
    """Epochs of novelty training on so many ``pictures``: EPOCHS, or as many as make LEAST_STEPS steps."""
    return max(EPOCHS, -(-LEAST_STEPS // -(-pictures // _BATCH)))


def learn_network(
    items: Sequence[LabelledImage],
    start: nn.Sequential | NoveltyNetwork,
    epochs: int = EPOCHS,
    seed: int = 0,
    on_batch: Callable[[int, float], None] = lambda pictures, loss: None,
) -> NoveltyNetwork:
    """A novelty network trained on clean labelled pictures ``items`` for ``epochs`` epochs, each with other shapes.

    ``start``: the pretrained blocks from :func:`mobile_blocks`, or a network to continue from. ``on_batch`` is called with the
    number of pictures of a step and its loss. The same seed, pictures and number of torch threads give the same network.

    Raises InvalidInput without pictures, and for one that cannot be read.
    """
    if not items:
        raise InvalidInput("no pictures to train novelty detection on, expected some hundreds")
    batches = list(_batches(items, epochs, seed))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NoveltyNetwork().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if isinstance(start, NoveltyNetwork):
        network.load_state_dict(start.state_dict())
    else:
        network.start_from(start)
    network.encoder.eval()  # its batch statistics come from many more pictures
    network.encoder[:_KEPT].requires_grad_(False)
    known = list(network.encoder[_KEPT:].parameters())
    new = [p for name, p in network.named_parameters() if not name.startswith("encoder")]
    groups: list[dict[str, Any]] = [{"params": new}, {"params": known, "lr": _RATE * _GENTLE}]
    optimizer = torch.optim.AdamW(groups, lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / _WARM_UP) * max(0.01, 1 - step / len(batches))
    )
    with ThreadPoolExecutor(2, "samples") as pool:
        waiting: list[list[Future[Sample]]] = []
        for number in range(len(batches)):
            for batch in batches[number + len(waiting) : number + _AHEAD]:
                waiting.append([pool.submit(sample, item, epoch, seed) for item, epoch in batch])
            samples = [future.result() for future in waiting.pop(0)]
            with torch.autocast("cpu", torch.bfloat16):
                predicted = network(network_input(s.picture for s in samples))
            loss = _loss(predicted.float(), samples)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            on_batch(len(samples), loss.item())
    return network.eval().requires_grad_(False)


def _batches(
    items: Sequence[LabelledImage], epochs: int, seed: int
) -> Iterator[list[tuple[LabelledImage, int]]]:
    """Batches of (picture, epoch) in an order drawn from ``seed``, each of pictures that are of one size for the network."""
    for epoch in range(epochs):
        waiting: dict[tuple[int, int], list[tuple[LabelledImage, int]]] = {}
        for number in np.random.default_rng((seed, epoch)).permutation(len(items)).tolist():
            item = items[number]
            size = input_size(item.width, item.height)
            batch = waiting.setdefault(size, [])
            batch.append((item, epoch))
            if len(batch) == _BATCH:
                yield waiting.pop(size)
        yield from waiting.values()


def _loss(predicted: Tensor, samples: Sequence[Sample]) -> Tensor:
    """Sum of the mean cross entropy of every channel over the cells with weight, and of the mean -log IoU of boxes."""
    targets, weights = (
        torch.from_numpy(np.stack(arrays)) for arrays in zip(*(s[1:3] for s in samples), strict=True)
    )
    logits = predicted[:, : targets.shape[1]]
    emphasis = torch.tensor(_EMPHASIS).view(1, -1, 1, 1)
    each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none", pos_weight=emphasis)
    classes = (each * weights).sum(dim=(0, 2, 3)) / weights.sum(dim=(0, 2, 3)).clamp_min(1.0)
    edges = torch.from_numpy(np.stack([s.edges for s in samples]))
    found = predicted[:, targets.shape[1] :].clamp(max=FARTHEST).exp()
    shared = torch.minimum(found, edges)
    inside = (shared[:, 0] + shared[:, 2]) * (shared[:, 1] + shared[:, 3])
    areas = [(e[:, 0] + e[:, 2]) * (e[:, 1] + e[:, 3]) for e in (found, edges)]
    iou = inside / (areas[0] + areas[1] - inside).clamp_min(1e-6)
    middle = targets[:, -1] * weights[:, -1]
    boxes = -(iou.clamp_min(1e-6).log() * middle).sum() / middle.sum().clamp_min(1.0)
    return (classes * torch.tensor(_SHARES)).sum() + boxes
