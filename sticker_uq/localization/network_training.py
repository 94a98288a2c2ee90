"""Teaching the network that looks for strangers: clean labelled pictures on which shapes of no particular kind are laid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.datasets.abnormal_shapes import exposed
from sticker_uq.datasets.coco import LabelledImage
from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.sampling import read_picture
from sticker_uq.localization.network import CHANNELS, STRIDE, StrangerNetwork, input_size, network_input
from sticker_uq.scene import InvalidInput

EPOCHS = 3
_MOBILE = "ssdlite320_mobilenet_v3_large"
_CLEAN = 0.25
"""Part of the pictures that are left as they are."""
_COVERED, _FREE = 0.2, 0.02
"""Part of a cell from which it counts as covered by a stranger, and up to which as free; cells between teach nothing."""
_IN, _OUT = 0.5, 0.05
"""Part of a cell in an object's box from which it counts as the object's, and up to which it does not."""
_HIDDEN = 0.7
"""Part of a cell that a stranger covers from which the object below does not show."""
_BATCH = 8
_AHEAD = 3
_RATE, _DECAY, _WARM_UP = 2e-3, 1e-2, 100
_STRANGER_WEIGHT = 3.0
_KEPT = 4
"""Blocks of an encoder that has learned already which stay as they are: down to 4 px per cell."""
_GENTLE = 0.3
"""Learning rate of its other blocks as a part of that of the new layers."""


class _Sample(NamedTuple):
    """Picture (H, W, 3) uint8, targets and weights (3, h, w) float32 of CHANNELS."""

    picture: NDArray[np.uint8]
    targets: NDArray[np.float32]
    weights: NDArray[np.float32]


def mobile_blocks(detector: StochasticDetector) -> nn.Sequential:
    """The blocks of the MobileNetV3 of ``detector``, to start from; InvalidInput where it has none."""
    stages = getattr(getattr(detector.model, "backbone", None), "features", None)
    blocks = stages[0] if isinstance(stages, nn.Sequential) else None
    if detector.name != _MOBILE or not isinstance(blocks, nn.Sequential):
        raise InvalidInput(f"model {detector.name!r} has no MobileNetV3 to start from, expected {_MOBILE!r}")
    return blocks


def learn_network(
    items: Sequence[LabelledImage],
    start: nn.Sequential | StrangerNetwork,
    epochs: int = EPOCHS,
    seed: int = 0,
    on_batch: Callable[[int, float], None] = lambda pictures, loss: None,
) -> StrangerNetwork:
    """A network from clean labelled pictures ``items`` of one size, each seen ``epochs`` times with other shapes.

    Its encoder begins with the blocks ``start`` of :func:`mobile_blocks`, which know the pictures already; or it goes on from
    another network.

    ``on_batch`` is told how many pictures a step had, and its loss. The same seed, pictures and number of torch's threads give
    the same network. Raises InvalidInput without pictures, for pictures of different sizes, and for one that cannot be read.
    """
    sizes = {(item.width, item.height) for item in items}
    if len(sizes) != 1:
        raise InvalidInput(
            f"{len(items)} pictures of {len(sizes)} sizes to learn strangeness from, expected some hundreds of one size"
        )
    batches = list(_batches(items, epochs, seed))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = StrangerNetwork().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if isinstance(start, StrangerNetwork):
        network.load_state_dict(start.state_dict())
    else:
        network.start_from(start)
    network.encoder.eval()  # its statistics are those of many more pictures
    network.encoder[:_KEPT].requires_grad_(False)
    known = list(network.encoder[_KEPT:].parameters())
    new = [p for name, p in network.named_parameters() if not name.startswith("encoder")]
    groups: list[dict[str, Any]] = [{"params": new}, {"params": known, "lr": _RATE * _GENTLE}]
    optimizer = torch.optim.AdamW(groups, lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / _WARM_UP) * max(0.01, 1 - step / len(batches))
    )
    weight = torch.tensor([_STRANGER_WEIGHT, 1.0, 1.0]).view(1, len(CHANNELS), 1, 1)
    with ThreadPoolExecutor(2, "samples") as pool:
        waiting: list[list[Future[_Sample]]] = []
        for number in range(len(batches)):
            for batch in batches[number + len(waiting) : number + _AHEAD]:
                waiting.append([pool.submit(_sample, item, epoch, seed) for item, epoch in batch])
            pictures, targets, weights = zip(*(future.result() for future in waiting.pop(0)), strict=True)
            with torch.autocast("cpu", torch.bfloat16):
                logits = network(network_input(pictures))
            loss = _loss(logits.float(), np.stack(targets), torch.from_numpy(np.stack(weights)), weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            on_batch(len(pictures), loss.item())
    return network.eval().requires_grad_(False)


def _batches(
    items: Sequence[LabelledImage], epochs: int, seed: int
) -> Iterator[list[tuple[LabelledImage, int]]]:
    for epoch in range(epochs):
        order = np.random.default_rng((seed, epoch)).permutation(len(items))
        for start in range(0, len(order), _BATCH):
            yield [(items[int(k)], epoch) for k in order[start : start + _BATCH]]


def _loss(logits: Tensor, targets: NDArray[np.float32], weights: Tensor, strangers: Tensor) -> Tensor:
    """Mean cross entropy of every channel over the cells that teach, added up."""
    each = F.binary_cross_entropy_with_logits(
        logits, torch.from_numpy(targets), reduction="none", pos_weight=strangers
    )
    return ((each * weights).sum(dim=(0, 2, 3)) / weights.sum(dim=(0, 2, 3)).clamp_min(1.0)).sum()


def _sample(item: LabelledImage, epoch: int, seed: int) -> _Sample:
    """One picture with other shapes, place, scale and light in every epoch."""
    rng = np.random.default_rng((seed, epoch, item.image_id))
    image, covered = read_picture(item), np.zeros((item.height, item.width), np.uint8)
    if rng.random() >= _CLEAN:
        image, covered = exposed(image, item.boxes, rng)
    truth = np.zeros((item.height, item.width, len(CHANNELS)), np.uint8)
    truth[..., 0] = covered
    for (x1, y1, x2, y2), label in zip(np.rint(item.boxes).astype(int), item.labels, strict=True):
        truth[y1:y2, x1:x2, int(label)] = 255
    size = input_size(item.width, item.height)
    place = _placed(image, truth, size, rng)
    light = place[0].astype(np.float32) * rng.uniform(0.85, 1.15) + rng.uniform(-12, 12)
    noise = rng.standard_normal(light.shape, dtype=np.float32) * np.float32(rng.uniform(0, 3))
    picture = np.asarray(np.clip(np.rint(light + noise), 0, 255), np.uint8)
    cells = (-(-size[0] // STRIDE), -(-size[1] // STRIDE))
    shares = cv2.resize(place[1].astype(np.float32) / 255, cells, interpolation=cv2.INTER_AREA)
    return _Sample(picture, *_taught(shares.transpose(2, 0, 1)))


def _taught(shares: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Targets and weights (3, h, w) from the part of every cell that a stranger covers and that lies in boxes, (3, h, w)."""
    covered = shares[0]
    targets = np.concatenate([covered[None] > _COVERED, (shares[1:] > _IN) & (covered < _IN)])
    known = (shares[1:] > _IN) | (shares[1:] < _OUT)
    plain = (covered < _COVERED) | (covered > _HIDDEN)
    weights = np.concatenate([((covered > _COVERED) | (covered < _FREE))[None], known & plain])
    return targets.astype(np.float32), weights.astype(np.float32)


def _placed(
    image: NDArray[np.uint8], truth: NDArray[np.uint8], size: tuple[int, int], rng: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Picture and truth in the network's ``size``, at 0.8 to 1.25 times the scale and shifted; black beside the picture."""
    width, height = size
    scale = float(np.exp(rng.uniform(-0.22, 0.22)))
    scaled = (max(1, round(width * scale)), max(1, round(height * scale)))
    room = (width - scaled[0], height - scaled[1])
    left, top = (int(rng.integers(min(0, r), max(0, r) + 1)) for r in room)
    results = []
    for array in (image, truth):
        small = cv2.resize(array, scaled, interpolation=cv2.INTER_AREA)
        canvas = np.zeros((height, width, 3), np.uint8)
        part = small[max(0, -top) : height - top, max(0, -left) : width - left]
        canvas[max(0, top) : max(0, top) + part.shape[0], max(0, left) : max(0, left) + part.shape[1]] = part
        results.append(canvas)
    return results[0], results[1]
