# SPDX-License-Identifier: Apache-2.0
"""Training samples of the novelty network: a picture with random shapes, and the targets of its cells."""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.perception.novelty.network import CHANNELS, SIZE, STRIDE, input_size
from sticker_uq.scene import FloatArray, ObjectClass, Rng
from sticker_uq_lab.datasets.abnormal_shapes import Exposed, add_shapes

_CLEAN = 0.25  # share of the pictures that are left unchanged
_COVERED, _FREE = 0.2, 0.02
"""Share covered by a foreign object above which a cell is positive, and below which negative; others are ignored."""
_IN, _OUT = 0.5, 0.05
"""Share in an object's box above which a cell is positive for the object, and below which negative."""
_HIDDEN = 0.7  # share covered by a foreign object above which the object below is not visible
_AIMED = 0.8  # share of the windows that show an object or a shape
_SEEN = 0.25  # lowest visible share of a sticker that is a positive; others are ignored
_TOLD_APART = 3.0  # weight of a cell with a raised shape: that it is no sticker is hardest to learn
_MIDDLE, _RIM = 0.5, 0.8
"""Centre region of a sticker's box, and the ignored margin around it, relative to its sides."""


class NoveltySample(NamedTuple):
    """``picture`` (H, W, 3) uint8; ``targets`` and ``weights`` (4, h, w) float32 of CHANNELS and of the centre of a sticker;
    ``edges`` (4, h, w) float32: at such a centre the distances to the edges of the sticker's visible part, in cells.
    """

    picture: NDArray[np.uint8]
    targets: NDArray[np.float32]
    weights: NDArray[np.float32]
    edges: NDArray[np.float32]


def sample(item: LabelledImage, epoch: int, seed: int, size: tuple[int, int] = SIZE) -> NoveltySample:
    """A sample of ``item`` for a network of ``size``: other shapes, position, scale and light in every epoch.

    For a network with a larger input than SIZE it is a window of SIZE, mostly around something to tell.
    """
    rng = np.random.default_rng((seed, epoch, item.image_id))
    image = read_picture(item)
    bare = np.zeros(image.shape[:2], np.uint8)
    scene = Exposed(image, bare, bare, np.zeros((0, 4), np.float32))
    if rng.random() >= _CLEAN:
        scene = add_shapes(image, item.boxes, rng)
    truth = np.zeros((*bare.shape, 1 + len(CHANNELS)), np.uint8)
    truth[..., 0], truth[..., -1] = scene.covered, scene.raised
    stickers = item.boxes[item.labels == ObjectClass.STICKER]
    for (x1, y1, x2, y2), label in zip(np.rint(item.boxes).astype(int), item.labels, strict=True):
        truth[y1:y2, x1:x2, int(label)] = 255
    for x1, y1, x2, y2 in np.rint(scene.flat).astype(int):
        truth[y1:y2, x1:x2, int(ObjectClass.STICKER)] = 255
    visible, shares = _visible(np.concatenate([stickers, scene.flat]), scene.raised)
    whole = input_size(item.width, item.height, size)
    size = min(whole, input_size(item.width, item.height))
    pixels, truth, moved = _place(scene.image, truth, visible, whole, rng)
    if whole != size:
        pixels, truth, moved = _cut_window(pixels, truth, moved, size, rng)
    light = pixels.astype(np.float32) * rng.uniform(0.85, 1.15) + rng.uniform(-12, 12)
    noise = rng.standard_normal(light.shape, dtype=np.float32) * np.float32(rng.uniform(0, 3))
    picture = np.asarray(np.clip(np.rint(light + noise), 0, 255), np.uint8)
    cells = (-(-size[0] // STRIDE), -(-size[1] // STRIDE))
    parts = cv2.resize(truth.astype(np.float32) / 255, cells, interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
    targets, weights = _taught(parts)
    middle, edges = _middles(moved / STRIDE, shares, parts[-1])
    return NoveltySample(
        picture, np.concatenate([targets, middle[:1]]), np.concatenate([weights, middle[1:]]), edges
    )


def _cut_window(
    pixels: NDArray[np.uint8], truth: NDArray[np.uint8], boxes: FloatArray, size: tuple[int, int], rng: Rng
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], FloatArray]:
    """The part of ``size`` of picture, truth and boxes around an object or a shape, or anywhere."""
    room = np.array([pixels.shape[1] - size[0], pixels.shape[0] - size[1]])
    corner = rng.integers(0, room + 1)
    if rng.random() < _AIMED:
        seen = np.flatnonzero(truth[..., 0 if rng.random() < 0.5 else int(rng.integers(1, truth.shape[2]))])
        if len(seen):
            row, column = divmod(int(seen[rng.integers(len(seen))]), truth.shape[1])
            corner = np.clip(np.array([column, row]) - rng.integers(0, list(size)), 0, room)
    x, y = map(int, corner)
    part = (slice(y, y + size[1]), slice(x, x + size[0]))
    inside = np.clip(boxes - np.array([x, y, x, y], np.float32), 0, np.array([*size, *size], np.float32))
    return pixels[part], truth[part], np.asarray(inside, np.float32)


def _visible(boxes: FloatArray, raised: NDArray[np.uint8]) -> tuple[FloatArray, FloatArray]:
    """The visible parts of ``boxes`` under ``raised`` (H, W): boxes (N, 4) and shares (N,)."""
    found, parts = boxes.copy(), np.ones(len(boxes), np.float32)
    for number, (x1, y1, x2, y2) in enumerate(np.rint(np.maximum(boxes, 0)).astype(int)):
        window = (raised[y1:y2, x1:x2] <= 127).astype(np.uint8)
        if window.size and not window.all():
            x, y, w, h = cv2.boundingRect(window)
            found[number] = x1 + x, y1 + y, x1 + x + w, y1 + y + h
            parts[number] = window.mean()
    return found, parts


def _taught(shares: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Targets and weights (3, h, w) of CHANNELS.

    ``shares`` (4, h, w): share of every cell that is covered by a foreign object, in boxes of logos, in boxes of stickers, and
    covered by a raised shape.
    """
    covered, raised = shares[0], shares[-1]
    objects = shares[1:-1]
    targets = np.concatenate([covered[None] > _COVERED, (objects > _IN) & (raised < _IN)])
    known = (objects > _IN) | (objects < _OUT)
    plain = (raised < _COVERED) | (raised > _HIDDEN)
    weights = np.concatenate([((covered > _COVERED) | (covered < _FREE))[None], known & plain])
    return targets.astype(np.float32), weights.astype(np.float32)


def _middles(
    boxes: FloatArray, shares: FloatArray, raised: FloatArray
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Target and weight (2, h, w) of the centres of ``boxes`` (N, 4) in cells, and the distances to their edges (4, h, w)."""
    height, width = raised.shape
    target, weight = np.zeros((height, width), np.float32), np.ones((height, width), np.float32)
    weight[raised > _HIDDEN] = _TOLD_APART
    edges = np.ones((4, height, width), np.float32)
    rows, columns = np.mgrid[:height, :width] + 0.5
    sizes = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    # of overlapping boxes the smaller one counts
    for number in np.argsort(-sizes.prod(axis=1), kind="stable"):
        (x1, y1, x2, y2), (w, h) = boxes[number], np.maximum(sizes[number], 1.0)
        across, down = np.abs(columns - (x1 + x2) / 2) / (w / 2), np.abs(rows - (y1 + y2) / 2) / (h / 2)
        away = np.maximum(across, down)
        inside = (columns > x1) & (columns < x2) & (rows > y1) & (rows < y2)
        # the centre region of a small box may contain no cell centre
        near = (np.maximum(np.abs(columns - (x1 + x2) / 2), np.abs(rows - (y1 + y2) / 2)) <= 0.5) & inside
        middle = ((away <= _MIDDLE) | near) & inside
        if shares[number] < _SEEN or not inside.any():
            weight[inside] = 0
            continue
        shown = middle & (raised < _HIDDEN)
        shown = shown if shown.any() else inside & (raised < _HIDDEN)
        weight[(away <= _RIM) & ~shown] = 0
        target[shown], weight[shown] = 1, 1
        edges[:, shown] = np.stack([columns - x1, rows - y1, x2 - columns, y2 - rows])[:, shown]
    return np.stack([target, weight]), edges


def _place(
    image: NDArray[np.uint8], truth: NDArray[np.uint8], boxes: FloatArray, size: tuple[int, int], rng: Rng
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], FloatArray]:
    """Picture, truth and boxes in the network's ``size``, scaled by 0.8 to 1.25 and shifted; black beside the picture."""
    width, height = size
    scale = float(np.exp(rng.uniform(-0.22, 0.22)))
    scaled = (max(1, round(width * scale)), max(1, round(height * scale)))
    space = (width - scaled[0], height - scaled[1])
    left, top = (int(rng.integers(min(0, r), max(0, r) + 1)) for r in space)
    results = []
    for array in (image, truth):
        small = cv2.resize(array, scaled, interpolation=cv2.INTER_AREA)
        canvas = np.zeros((height, width, array.shape[2]), np.uint8)
        part = small[max(0, -top) : height - top, max(0, -left) : width - left]
        canvas[max(0, top) : max(0, top) + part.shape[0], max(0, left) : max(0, left) + part.shape[1]] = part
        results.append(canvas)
    factor = np.array([scaled[0] / image.shape[1], scaled[1] / image.shape[0]] * 2, np.float32)
    moved = boxes * factor + np.array([left, top] * 2, np.float32)
    inside = np.clip(moved, 0, np.array([width, height] * 2, np.float32))
    return results[0], results[1], np.asarray(inside, np.float32)
