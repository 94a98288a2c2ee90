# SPDX-License-Identifier: Apache-2.0
"""Learning a novelty network from labelled pictures, and how well it tells what it has not seen."""

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.kernels.devices import return_freed_memory
from sticker_uq.detection.transfer import to_device
from sticker_uq.evaluation.metrics.statistics import area_under_roc, bootstrap
from sticker_uq.gate.policy.familiarity import tail_limit
from sticker_uq.io.coco import LabelledImage, pictures_of
from sticker_uq.perception.image_novelty import ImageNovelty, novelty_from_network
from sticker_uq.perception.novelty import network as networks
from sticker_uq.perception.novelty.network import SIZE, NoveltyNetwork
from sticker_uq.perception.novelty.quality import Auroc, NoveltyQuality
from sticker_uq.scene import FloatArray, InvalidInput
from sticker_uq_lab import Progress
from sticker_uq_lab.datasets.abnormal import add_foreign_objects
from sticker_uq_lab.training.loading import Arrays, ahead
from sticker_uq_lab.training.novelty_samples import sample

HELD_OUT, MOST_HELD_OUT = 0.2, 400
"""Share of the pictures that nothing is learned from, and the largest number of them."""
MOST_IN_REFERENCE = 1200
BEYOND = 0.001
"""Share of familiar scenes that are expected beyond distance 1."""
FEWEST = 50
_PHOTOGRAPHS = (
    "astronaut", "brick", "camera", "cat", "clock", "coffee", "coins", "grass", "gravel", "hubble_deep_field",
    "immunohistochemistry", "moon", "page", "retina", "rocket", "text",
)  # fmt: skip
"""Those that come with scikit-image; the ones of scikit-learn are trained on."""

Picture = NDArray[np.uint8]


def split(items: Sequence[LabelledImage], seed: int) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """``items`` to train on, and those that are held out, drawn by ``seed``. InvalidInput for fewer than 50."""
    if len(items) < FEWEST:
        raise InvalidInput(
            f"{len(items)} pictures to train novelty detection on, expected some hundreds, at least {FEWEST}; `sticker-uq "
            "dataset frames` takes more from a recording"
        )
    held = min(round(len(items) * HELD_OUT), MOST_HELD_OUT)
    order = np.random.default_rng(seed).permutation(len(items))
    return [items[i] for i in sorted(order[held:])], [items[i] for i in sorted(order[:held])]


def measure_network(
    model: NoveltyNetwork,
    learned: Sequence[LabelledImage],
    held: Sequence[LabelledImage],
    seed: int = 0,
    on_picture: Callable[[], None] = lambda: None,
) -> NoveltyQuality:
    """The quality of ``model`` on ``held``, its reference fitted to ``learned``; ``on_picture``: for each that is read."""
    network = networks.ready(copy.deepcopy(model))
    set_reference(network.reference, partial(networks.scene_activations, network), learned, held, on_picture)
    model.reference.load_state_dict(network.reference.state_dict())
    model.limit = network.limit = 1.0  # its unit is the distance that these held-out pictures give
    return measure_quality(partial(novelty_from_network, network), held, seed, on_picture)


def set_reference(
    reference: networks.SceneReference,
    activations: Callable[[Picture], Tensor],
    learned: Sequence[LabelledImage],
    held: Sequence[LabelledImage],
    on_picture: Callable[[], None] = lambda: None,
) -> None:
    """Fit ``reference`` to ``activations`` (C,) of pictures ``learned``; 0.1 % of ``held`` ones are expected beyond 1.

    The covariance is shrunk (Ledoit and Wolf 2004), so that fewer pictures than channels suffice. So few held-out pictures lie
    far out that their tail is continued as an exponential one.
    """
    from sklearn.covariance import LedoitWolf  # takes a second to load

    def measure(items: Sequence[LabelledImage]) -> FloatArray:
        pictures = (picture for _, picture in pictures_of(items, on_picture))
        return np.array([activations(picture).double().cpu().numpy() for picture in pictures])

    known = measure(_spread(learned))
    mean, spread = known.mean(axis=0), known.std(axis=0) + 1e-6
    gaussian = LedoitWolf(assume_centered=True).fit((known - mean) / spread)
    values, vectors = np.linalg.eigh(gaussian.precision_)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T / spread
    distances = np.linalg.norm((measure(held) - mean) @ root.T, axis=1)
    unit = tail_limit(distances, BEYOND)
    reference.set(torch.from_numpy(mean), torch.from_numpy(root / unit))


def _spread(learned: Sequence[LabelledImage]) -> Sequence[LabelledImage]:
    return learned[:: -(-len(learned) // MOST_IN_REFERENCE)]


def measure_quality(
    novelty: Callable[[Picture], ImageNovelty],
    held: Sequence[LabelledImage],
    seed: int = 0,
    on_picture: Callable[[], None] = lambda: None,
) -> NoveltyQuality:
    """How well ``novelty`` tells the unknown from the known on pictures ``held``, which it did not learn from.

    Objects: those of kinds that no training picture holds, drawn into the pictures, against the labelled ones. Scenes:
    photographs that come with scikit-image, whole and in quarters, against the pictures.
    """
    known: list[list[float]] = []
    unknown: list[list[float]] = []
    familiar = []
    for item, picture in pictures_of(held, on_picture):
        rng = np.random.default_rng((seed, item.image_id))
        plain = novelty(picture)
        scene = add_foreign_objects(picture, item.boxes, item.labels, rng, stickers=False)
        changed = novelty(scene.image)
        familiar.append(plain.distance)
        known.append([plain.at(box) for box in item.boxes])
        unknown.append([changed.at(box) for box in scene.added])
    foreign = [[novelty(view).distance for view in views] for views in photographs()]
    return NoveltyQuality(_auroc(known, unknown), _auroc([[d] for d in familiar], foreign), len(held))


def _auroc(known: Sequence[Sequence[float]], unknown: Sequence[Sequence[float]]) -> Auroc:
    """The area with its interval; values of one picture are drawn together. 0 to 1 around 0.5 where nothing was measured."""

    def area(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        rows = (
            [v for i in drawn for v in values[i]] for drawn, values in ((first, known), (second, unknown))
        )
        return area_under_roc(*(np.array(row) for row in rows))

    value = area(np.arange(len(known)), np.arange(len(unknown)))
    if np.isnan(value):
        return Auroc(0.5, 0.0, 1.0)
    low, high = bootstrap(area, [len(known), len(unknown)], resamples=300)
    return Auroc(*(round(float(v), 4) for v in (value, low, high)))


@lru_cache(maxsize=1)
def photographs() -> tuple[tuple[Picture, ...], ...]:
    """Unknown pictures to measure on: scikit-image's photographs (H, W, 3) uint8 BGR, whole and quarters."""
    import skimage.data

    return tuple(_views(np.asarray(getattr(skimage.data, name)(), np.uint8)) for name in _PHOTOGRAPHS)


def _views(photo: Picture) -> tuple[Picture, ...]:
    colour = photo[..., :3] if photo.ndim == 3 else np.repeat(photo[..., None], 3, axis=2)
    bgr = np.ascontiguousarray(colour[..., ::-1])
    rows, columns = (side // 2 for side in bgr.shape[:2])
    quarters = (
        (r, c) for r in (slice(rows), slice(rows, None)) for c in (slice(columns), slice(columns, None))
    )
    return bgr, *(np.ascontiguousarray(bgr[part]) for part in quarters)


EPOCHS, LEAST_STEPS = 3, 400
"""Of a training whose epochs nobody chose: few pictures take more epochs, for the rate rises over the first hundred steps."""
_MOBILE = "ssdlite320_mobilenet_v3_large"
_BATCH, _WORKERS = 8, 2
_PROCESSOR = torch.device("cpu")
_RATE, _DECAY, _WARM_UP = 2e-3, 1e-2, 100
_EMPHASIS = (3.0, 1.0, 1.0, 3.0)
"""Loss weights of positive cells for foreign object, logo, sticker and sticker centre, relative to negative ones."""
_SHARES = (1.0, 1.0, 1.0, 2.0)  # of these in the loss


def mobile_blocks(detector: StochasticDetector) -> nn.Sequential:
    stages = getattr(getattr(detector.model, "backbone", None), "features", None)
    blocks = stages[0] if isinstance(stages, nn.Sequential) else None
    if detector.name != _MOBILE or not isinstance(blocks, nn.Sequential):
        raise InvalidInput(f"model {detector.name!r} has no MobileNetV3 to start from, expected {_MOBILE!r}")
    return blocks


def epochs_for(pictures: int) -> int:
    """EPOCHS, or as many as make LEAST_STEPS steps with so many ``pictures``."""
    return max(EPOCHS, -(-LEAST_STEPS // -(-pictures // _BATCH)))


def learn_network(
    items: Sequence[LabelledImage],
    start: nn.Sequential | NoveltyNetwork,
    epochs: int = EPOCHS,
    seed: int = 0,
    on_batch: Callable[[int, float], None] = lambda pictures, loss: None,
    size: tuple[int, int] | None = None,
    device: torch.device = _PROCESSOR,
) -> NoveltyNetwork:
    """A novelty network trained on clean labelled pictures ``items`` for ``epochs`` epochs, each with other shapes.

    ``start``: the pretrained blocks from :func:`mobile_blocks`, or a network to continue from. ``on_batch`` is called with the
    number of pictures of a step and its loss. ``size``: of its input, by default that of ``start``.
    On a processor the same seed, pictures and number of torch threads give the same network.
    """
    if not items:
        raise InvalidInput("no pictures to train novelty detection on, expected some hundreds")
    size = size or (start.size if isinstance(start, NoveltyNetwork) else SIZE)
    batches = list(_batches(items, epochs, seed))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NoveltyNetwork(size).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if isinstance(start, NoveltyNetwork):
        network.load_state_dict(start.state_dict())
    else:
        network.start_from(start)
    # the scene's reference is about its maps: those that the detector learned tell foreign scenes well (docs/dil.md)
    network.encoder.eval().requires_grad_(False)
    new = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(new, lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / _WARM_UP) * max(0.01, 1 - step / len(batches))
    )

    def prepare(number: int) -> Arrays:
        samples = [sample(item, epoch, seed, size) for item, epoch in batches[number]]
        return tuple(map(np.stack, zip(*samples, strict=True)))

    for pictures, *truth in ahead(prepare, len(batches), _WORKERS, processes=device.type != "cpu"):
        with torch.autocast(device.type, torch.bfloat16):
            predicted = network(to_device(networks.network_input(pictures), device))
        loss = _loss(predicted.float(), *(torch.from_numpy(array).to(device) for array in truth))
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
        waiting: dict[tuple[int, int], list[tuple[LabelledImage, int]]] = {}
        for number in np.random.default_rng((seed, epoch)).permutation(len(items)).tolist():
            item = items[number]
            size = networks.input_size(item.width, item.height)
            batch = waiting.setdefault(size, [])
            batch.append((item, epoch))
            if len(batch) == _BATCH:
                yield waiting.pop(size)
        yield from waiting.values()


def _loss(predicted: Tensor, targets: Tensor, weights: Tensor, edges: Tensor) -> Tensor:
    """Sum of the mean cross entropy of every channel over the cells with weight, and of the mean -log IoU of boxes."""
    logits = predicted[:, : targets.shape[1]]
    emphasis = predicted.new_tensor(_EMPHASIS).view(1, -1, 1, 1)
    each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none", pos_weight=emphasis)
    classes = (each * weights).sum(dim=(0, 2, 3)) / weights.sum(dim=(0, 2, 3)).clamp_min(1.0)
    found = predicted[:, targets.shape[1] :].clamp(max=networks.FARTHEST).exp()
    shared = torch.minimum(found, edges)
    inside = (shared[:, 0] + shared[:, 2]) * (shared[:, 1] + shared[:, 3])
    areas = [(e[:, 0] + e[:, 2]) * (e[:, 1] + e[:, 3]) for e in (found, edges)]
    iou = inside / (areas[0] + areas[1] - inside).clamp_min(1e-6)
    middle = targets[:, -1] * weights[:, -1]
    boxes = -(iou.clamp_min(1e-6).log() * middle).sum() / middle.sum().clamp_min(1.0)
    return (classes * predicted.new_tensor(_SHARES)).sum() + boxes


def learn_novelty_network(
    detector: StochasticDetector,
    pictures: Sequence[LabelledImage],
    start: NoveltyNetwork | None = None,
    epochs: int | None = None,
    seed: int = 0,
    progress: Progress = lambda stage, done, total: None,
    size: tuple[int, int] | None = None,
) -> NoveltyNetwork:
    """A trained novelty network with its quality, which started from ``start`` or from the backbone of ``detector``.

    A fifth of ``pictures`` is held out to measure it on. ``epochs`` None: as many as :func:`epochs_for` says; with 0 ``start`` is
    only measured anew. ``size``: as of :func:`learn_network`.
    """
    learned, held = split(pictures, seed)
    epochs = epochs_for(len(learned)) if epochs is None else epochs
    begin = mobile_blocks(detector) if start is None else start
    if epochs or not isinstance(begin, NoveltyNetwork):
        done = 0

        def on_batch(size: int, loss: float) -> None:
            nonlocal done
            done += size
            progress("learning", done, len(learned) * epochs)

        model = learn_network(learned, begin, epochs, seed, on_batch, size, detector.device)
        model.to(_PROCESSOR)
        return_freed_memory()
    else:
        model = begin
    total, counted = len(_spread(learned)) + 2 * len(held), count(1)
    model.quality = measure_network(
        model, learned, held, seed, lambda: progress("measuring", next(counted), total)
    )
    return model
