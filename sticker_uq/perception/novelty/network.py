# SPDX-License-Identifier: Apache-2.0
"""A small network that detects foreign objects, objects on the lid that are in no training picture.

Its input is the picture, not the detector's maps, so that it serves every detector that was trained on pictures of the same
world. For every cell it tells how probably a foreign object, a logo or a sticker lies there (outlier exposure, Hendrycks et al.
2019), and of the picture how far it lies from the training pictures.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.models import mobilenet_v3_large
from torchvision.ops import nms

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.transfer import to_device
from sticker_uq.detection.weights import COUNTERS, Unfilled, load_weights, read_metadata, save_weights
from sticker_uq.perception.novelty.quality import NoveltyQuality
from sticker_uq.scene import FloatArray, InvalidInput


class SceneReference(nn.Module):
    """A Gaussian over activations of several layers for the training pictures (Lee et al. 2018).

    Distances are Mahalanobis distances relative to that of an unusual picture of the same kind: 1 is the farthest that such
    pictures are expected to lie. Until :meth:`set` all distances are NaN, and a file cannot be written.
    """

    mean: Tensor
    root: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((channels,), torch.nan))
        self.register_buffer("root", torch.full((channels, channels), torch.nan))

    def set(self, mean: Tensor, root: Tensor) -> None:
        """Set ``mean`` (C,), and ``root`` (C, C) of the inverse covariance over the distance that counts as 1."""
        self.mean.copy_(mean)
        self.root.copy_(root)

    def distance(self, activations: Tensor) -> float:
        """Distance of a scene with ``activations`` (C,), of :func:`scene_activations`, from the training pictures."""
        return float(torch.linalg.vector_norm(self.root @ (activations - self.mean)))


NETWORK_ROLE = "novelty network"
STRIDE = 8
"""Px of the network's input per cell."""
SIZE = (384, 288)
"""Width and height of the input for a picture of that shape, unless the network has others; other shapes have as many pixels."""
LARGEST = 2048
CHANNELS = ("foreign", "logo", "sticker")
"""What a cell may show."""
BOX = 5
"""Channels for boxes: whether the cell lies in the middle of a sticker, and its distances to the left, top, right and bottom
edge of what is visible of that, as logarithms of cells."""
_LEAST_SCORE = 0.05
_SAME_STICKER = 0.5
"""IoU from which two boxes are of the same sticker."""
FARTHEST = 4.5
"""Largest logarithm of a distance in cells."""
_BLOCKS = 13
_TAPPED = {3: 24, 6: 40, 9: 80, 12: 112}
"""Blocks of the encoder that the reference reads, with their channels: 4, 8, 16 and 16 px per cell. The decoder reads all but the
third."""
_WIDTH, _FINE = 48, 24
_NORM = partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
_MEAN, _SPREAD = 0.5, 0.5


@dataclass(frozen=True)
class NoveltyMaps:
    """Outputs for a picture of ``image_size`` (width, height) px.

    ``foreign`` and ``sticker`` (h, w): probability that the cell shows one. A cell is ``cell`` (width, height) px.
    ``boxes`` (K, 4) float32 px: the visible part of the stickers that it detects, of known kinds and of others;
    ``scores`` (K,): the probability of each, the highest first. ``distance``: of the scene, 1 at the network's limit.
    """

    foreign: FloatArray
    sticker: FloatArray
    image_size: tuple[int, int]
    cell: tuple[float, float]
    boxes: FloatArray = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    scores: FloatArray = field(default_factory=lambda: np.zeros(0, np.float32))
    distance: float = math.nan


class NoveltyNetwork(nn.Module):
    """Maps pictures (n, 3, H, W) from :func:`network_input` to (n, 8, h, w): logits of CHANNELS, and BOX; STRIDE px per cell.

    A MobileNetV3 (Howard et al. 2019) down to 16 px per cell, and a decoder that joins three of its resolutions. ``reference``:
    of the means and standard deviations of its maps; ``limit``: distance by that up to which a scene is familiar; ``quality``: as
    measured after training, None where it was not; ``size``: of the input, as SIZE.
    """

    quality: NoveltyQuality | None = None
    limit: float = 1.0

    def __init__(self, size: tuple[int, int] = SIZE) -> None:
        super().__init__()
        self.size = size
        self.encoder = mobilenet_v3_large(weights=None, norm_layer=_NORM).features[:_BLOCKS]
        quarter, eighth, _, sixteenth = _TAPPED.values()
        self.coarse = nn.Sequential(_layer(sixteenth + eighth, _WIDTH, kernel=1), _layer(_WIDTH, _WIDTH))
        self.fine = _layer(quarter, _FINE, stride=2)
        self.head = nn.Sequential(
            _layer(_WIDTH + _FINE, _WIDTH, kernel=1),
            _layer(_WIDTH, _WIDTH),
            nn.Conv2d(_WIDTH, len(CHANNELS) + BOX, 1),
        )
        self.reference = SceneReference(2 * sum(_TAPPED.values()))

    def forward(self, pictures: Tensor) -> Tensor:
        return self.decode(self.encode(pictures))

    def encode(self, pictures: Tensor) -> list[Tensor]:
        """The maps of _TAPPED, fine to coarse."""
        maps = pictures
        tapped = []
        for number, block in enumerate(self.encoder):
            maps = block(maps)
            if number in _TAPPED:
                tapped.append(maps)
        return tapped

    def decode(self, tapped: Sequence[Tensor]) -> Tensor:
        """Logits and boxes from the maps of :meth:`encode`."""
        quarter, eighth, _, sixteenth = tapped
        larger = F.interpolate(sixteenth, eighth.shape[-2:], mode="bilinear", align_corners=False)
        joined = self.coarse(torch.cat([larger, eighth], dim=1))
        return torch.as_tensor(self.head(torch.cat([joined, self.fine(quarter)], dim=1)))

    def scene_distance(self, activations: Tensor) -> float:
        """Distance of a scene with ``activations`` (C,), of :func:`scene_activations`, in units of the limit."""
        return self.reference.distance(activations) / self.limit

    def start_from(self, blocks: nn.Sequential) -> None:
        """Copy the weights of the first ``blocks`` of another MobileNetV3."""
        self.encoder.load_state_dict(blocks[:_BLOCKS].state_dict())


def _layer(inside: int, outside: int, *, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


def input_size(width: int, height: int, size: tuple[int, int] = SIZE) -> tuple[int, int]:
    """Width and height of the input for ``width`` x ``height`` px: the same shape, with as many px as ``size`` has."""
    scale = math.sqrt(size[0] * size[1] / (width * height))
    return max(STRIDE, round(width * scale)), max(STRIDE, round(height * scale))


def network_input(pictures: Iterable[NDArray[np.uint8]]) -> Tensor:
    """Input (n, 3, H, W) for ``pictures`` (H, W, 3) uint8 BGR, all of one size, that of :func:`input_size`."""
    stacked = torch.from_numpy(np.stack([picture.transpose(2, 0, 1) for picture in pictures]))
    scaled = (stacked.float() / 255 - _MEAN) / _SPREAD
    return scaled.contiguous(memory_format=torch.channels_last)


Tensors = tuple[Tensor, ...]


def novelty_maps(
    network: NoveltyNetwork,
    image: NDArray[np.uint8],
    run: Callable[[str, Callable[..., Tensors], Sequence[Tensor]], Tensors] | None = None,
) -> NoveltyMaps:
    """Outputs of ``network`` for ``image`` (H, W, 3) uint8 BGR of any size.

    ``run("novelty", compute, inputs)`` computes them, as ``StochasticDetector.run_stage``; None: as they are.
    """

    def compute(pixels: Tensor) -> Tensors:
        tapped = network.encode(pixels)
        return network.decode(tapped)[0].float(), _statistics(tapped)

    height, width = image.shape[:2]
    across, down = input_size(width, height, network.size)
    cell = (STRIDE * width / across, STRIDE * height / down)
    with torch.inference_mode():
        pixels = _prepare(network, image)
        made, statistics = compute(pixels) if run is None else run("novelty", compute, [pixels])
        found = made.cpu()
        distance = network.scene_distance(statistics)
    foreign, _, sticker, middle = found[: len(CHANNELS) + 1].sigmoid().numpy()
    boxes, scores = _boxes(torch.from_numpy(middle), found[len(CHANNELS) + 1 :], cell, (width, height))
    return NoveltyMaps(foreign, sticker, (width, height), cell, boxes, scores, distance)


def scene_activations(network: NoveltyNetwork, image: NDArray[np.uint8]) -> Tensor:
    """Means, then standard deviations, (C,) of the encoder's maps of ``image`` (H, W, 3) uint8 BGR, for the reference."""
    with torch.inference_mode():
        return _statistics(network.encode(_prepare(network, image)))


def _prepare(network: NoveltyNetwork, image: NDArray[np.uint8]) -> Tensor:
    height, width = image.shape[:2]
    size = input_size(width, height, network.size)
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA if size[0] <= width else cv2.INTER_LINEAR)
    return to_device(network_input([np.asarray(small, np.uint8)]), next(network.parameters()).device)


def _statistics(tapped: Sequence[Tensor]) -> Tensor:
    deviations, means = zip(*(torch.std_mean(maps[0].float(), dim=(1, 2)) for maps in tapped), strict=True)
    return torch.cat([*means, *deviations])


def _boxes(
    middle: Tensor, edges: Tensor, cell: tuple[float, float], limits: tuple[int, int]
) -> tuple[FloatArray, FloatArray]:
    """Boxes (K, 4) px and scores (K,) of stickers from the probabilities (h, w) of their middles and ``edges`` (4, h, w)."""
    rows, columns = torch.nonzero(middle >= _LEAST_SCORE, as_tuple=True)
    scores = middle[rows, columns]
    away = edges[:, rows, columns].clamp(max=FARTHEST).exp()
    x, y = columns + 0.5, rows + 0.5
    sides = torch.stack([x - away[0], y - away[1], x + away[2], y + away[3]], dim=1)
    boxes = (sides * torch.tensor([*cell, *cell])).clamp_min(0).minimum(torch.tensor([*limits, *limits]))
    kept = nms(boxes, scores, _SAME_STICKER)
    return boxes[kept].numpy(), scores[kept].numpy()


def save_network(network: NoveltyNetwork, detector: StochasticDetector, path: str | os.PathLike[str]) -> None:
    """Write ``network``, which started from ``detector``, its limit and its quality, in half precision.

    OSError when the disk fails, InvalidInput for a network without a reference.
    """
    quality = {} if network.quality is None else {"quality": network.quality.to_dict()}
    size = {} if network.size == SIZE else {"size": list(network.size)}
    metadata = {"model": detector.name, "role": NETWORK_ROLE, "detector": detector.weights_hash}
    save_weights(network, path, {**metadata, "limit": network.limit, **size, **quality}, half=True)


def load_network(path: str | os.PathLike[str], device: torch.device | str = "cpu") -> NoveltyNetwork:
    """The network in file ``path``, ready for inference; InvalidInput if it holds none."""
    return ready(read_network(path)).to(device)


def read_network(path: str | os.PathLike[str]) -> NoveltyNetwork:
    """The network in file ``path`` as it was saved, not yet ready for run time; InvalidInput if it holds none."""
    state, metadata = load_weights(path)
    if metadata.get("role") != NETWORK_ROLE:
        raise InvalidInput(
            f"{path}: is no novelty network, expected a file that `sticker-uq dil learn` wrote"
        )
    with Unfilled():
        network = NoveltyNetwork(_size_of(metadata, path))
    own = network.state_dict()
    expected = {name: value.shape for name, value in own.items() if not name.endswith(COUNTERS)}
    if expected != {name: value.shape for name, value in state.items()}:
        raise InvalidInput(
            f"{path}: has other layers than this version's network, expected one that it wrote"
        )
    network.load_state_dict(state, strict=False)
    network.limit = _limit_of(metadata, path)
    network.quality = _quality_of(metadata, path)
    return network


def _size_of(metadata: Mapping[str, Any], path: str | os.PathLike[str]) -> tuple[int, int]:
    size = metadata.get("size", SIZE)
    try:
        width, height = size
        if not (STRIDE <= width <= LARGEST and STRIDE <= height <= LARGEST):
            raise ValueError(f"expected {STRIDE} to {LARGEST} px")
        return int(width), int(height)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{path}: size {size!r} cannot be used ({error}), expected that of `sticker-uq dil learn`"
        ) from None


def _limit_of(metadata: Mapping[str, Any], path: str | os.PathLike[str]) -> float:
    """The limit in the ``metadata`` of file ``path``; files of before 0.4 have none, and their unit was meant as the limit."""
    limit = metadata.get("limit", 1.0)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0.0 < limit < math.inf:
        raise InvalidInput(f"{path}: limit {limit!r} of the scene distance, expected a number above 0")
    return float(limit)


def _quality_of(metadata: Mapping[str, Any], path: str | os.PathLike[str]) -> NoveltyQuality | None:
    """The quality in the ``metadata`` of file ``path``, None where not measured; InvalidInput if it cannot be read."""
    try:
        return NoveltyQuality.from_dict(metadata["quality"]) if "quality" in metadata else None
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{path}: quality {metadata['quality']!r} cannot be read ({error}), expected that of `sticker-uq dil learn`"
        ) from None


def ready(network: NoveltyNetwork) -> NoveltyNetwork:
    """``network`` itself, made ready for run time: normalisation is part of the convolutions, which is faster."""
    network.eval().requires_grad_(False)
    fuse(network)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def packaged_file(name: str) -> Path | None:
    """The packaged file for the packaged weights of model ``name``, or None when there is none."""
    path = Path(__file__).parent / "weights" / f"{name}_novelty.safetensors"
    return path if path.is_file() else None


def packaged_file_for(detector: StochasticDetector) -> Path | None:
    """The packaged file for ``detector``; None unless this has packaged weights."""
    path = packaged_file(detector.name)
    if path is None or read_metadata(path).get("detector") != detector.weights_hash:
        return None
    return path


def packaged_network(detector: StochasticDetector) -> NoveltyNetwork | None:
    """Ready for run time; None unless ``detector`` has packaged weights."""
    path = packaged_file_for(detector)
    return None if path is None else load_network(path, detector.device)


def fuse(module: nn.Module) -> None:
    """Make every normalisation after a convolution in ``module`` part of that, for run time."""
    for child in module.children():
        fuse(child)
    if isinstance(module, nn.Sequential):
        for number, (first, second) in enumerate(pairwise(list(module))):
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                module[number] = fuse_conv_bn_eval(first, second)
                module[number + 1] = nn.Identity()
