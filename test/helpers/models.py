# SPDX-License-Identifier: Apache-2.0
"""The built-in detectors with seeded random weights, tuned so that a small picture yields a handful of boxes.

Random weights detect nothing: the layers that score classes learn places of one picture and their bias is set so that in a pass
with dropout a few anchors or proposals per class reach a probability of about 0.5. Small inputs and few proposals keep it fast.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.dropout import PassDropout
from sticker_uq.detection.names import DEFAULT_MODEL, MODEL_NAMES
from sticker_uq.detection.registry import detector_entry
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.detection.weights import (
    Unfilled,
    checksum,
    close_up_weights,
    network_settings,
    packaged_weights,
    save_weights,
)
from sticker_uq.perception.novelty.network import packaged_file

MIN_SIZE = 128
PROPOSALS = 48
_PASSING = 15  # anchors or proposals per class and pass about or above 0.5, before suppression
_RATE = 0.2  # dropout that the tuning expects

FAMILIES = tuple(name for name in MODEL_NAMES if not name.endswith("_v2"))
"""One model of each kind; the others have layers of the same kinds, and test_passes.py holds them to torchvision."""


def picture(seed: int = 0, width: int = 224, height: int = 168) -> NDArray[np.uint8]:
    """A BGR picture of coloured shapes on a gradient, (height, width, 3) uint8."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(40, 200, width, dtype=np.float32)[None, :, None] * rng.uniform(0.5, 1.0, 3).astype(
        np.float32
    )
    image = np.broadcast_to(ramp, (height, width, 3)).astype(np.uint8).copy()
    for _ in range(10):
        x, y = int(rng.integers(0, width)), int(rng.integers(0, height))
        w, h = int(rng.integers(10, width // 3)), int(rng.integers(10, height // 3))
        colour = tuple(int(v) for v in rng.integers(0, 255, 3))
        if rng.random() < 0.5:
            cv2.rectangle(image, (x, y), (x + w, y + h), colour, -1)
        else:
            cv2.ellipse(image, (x, y), (w // 2, h // 2), float(rng.uniform(0, 180)), 0, 360, colour, -1)
    return np.clip(image + rng.normal(0, 6, image.shape), 0, 255).astype(np.uint8)


@cache
def tiny_model(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(MODEL_NAMES.index(name))
        model: Any = half_ssd300() if name == "ssd300_vgg16" else build_model(name, min_size=MIN_SIZE)
        if name.startswith("fasterrcnn"):
            model.rpn._pre_nms_top_n["testing"] = 4 * PROPOSALS
            model.rpn._post_nms_top_n["testing"] = PROPOSALS
        _settle_normalisation(model.eval())
        # no fast copy for one pass
        detector = StochasticDetector(model, DetectorSettings(model=name, device="cpu"), "", "reference")
        features = detector.encode(picture())
        dropout = PassDropout(_RATE, 0, range(1), detector.device)
        pairs = zip(detector.head_maps(features), detector.family.head_maps(features, dropout), strict=True)
        maps = [torch.cat(pair) for pair in pairs]  # a pass without dropout and one with it
        family = detector_entry(name).family
        if family == "retinanet":
            _tune_retinanet(model.head, maps)
        elif family == "faster_rcnn":
            _tune_faster_rcnn(model, features.image_list(2), maps)
        else:
            _tune_ssd(model.head, maps)
    return model


@cache
def tiny_detector(name: str, **settings: Any) -> StochasticDetector:
    """A detector on the processor around ``tiny_model(name)``; ``settings`` are fields of DetectorSettings."""
    if settings:
        plain = tiny_detector(name)
        return plain.with_settings(DetectorSettings(**plain.settings.model_dump() | settings))
    return StochasticDetector(
        tiny_model(name), DetectorSettings(model=name, min_size=MIN_SIZE, device="cpu"), _weights_hash(name)
    )


@cache
def _weights_hash(name: str) -> str:
    return checksum({k: v for k, v in tiny_model(name).state_dict().items() if "num_batches" not in k})


def forget_detectors() -> None:
    """Give back the memory of the detectors' fast copies, which are made again in a moment; the models take seconds and stay."""
    tiny_detector.cache_clear()


def tiny_weights(name: str, folder: Path) -> Path:
    """A weights file of ``tiny_model(name)`` in ``folder``, to be loaded with ``min_size=MIN_SIZE``.

    A Faster R-CNN loaded from it has torchvision's 1000 proposals and is slow.
    """
    path = folder / f"{name}.safetensors"
    save_weights(tiny_model(name), path, {"model": name, "data": "none", "seed": MODEL_NAMES.index(name)})
    return path


def small_weights(folder: Path, input_size: int = 320, close_ups: bool = False) -> Path:
    """The packaged weights in ``folder``, or those for ``close_ups``, with a smaller input: for pictures of 320 x 240 px.

    Their default boxes keep their size in pixels, which is what the network learned.
    """
    packaged = (close_up_weights if close_ups else packaged_weights)(DEFAULT_MODEL)
    assert packaged is not None
    network = network_settings(packaged)
    share = network["input_size"] / input_size
    scales = [min(n * share, 2.0) for n in network["anchor_scales"]]
    network |= {"input_size": input_size, "anchor_scales": scales}
    return _copied(packaged, folder / f"small{'_close_ups' * close_ups}.safetensors", network=network)


def small_novelty(folder: Path) -> Path:
    """The packaged novelty network in ``folder``, with a sixteenth of the pixels."""
    packaged = packaged_file(DEFAULT_MODEL)
    assert packaged is not None
    return _copied(packaged, folder / "small_novelty.safetensors", size=[192, 144])


def _copied(file: Path, path: Path, **changes: Any) -> Path:
    """A copy of the safetensors ``file`` that says something else about itself: quicker than to make its network."""
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    (key,) = metadata.keys() - {"format"}
    said = json.dumps(json.loads(metadata[key]) | changes)
    save_file(load_file(file), path, {**metadata, key: said})
    return path


def half_ssd300() -> nn.Module:
    """SSD300 with half its channels, which takes a quarter of the time: 300x300 px cannot be made smaller.

    The convolutions of 128 channels and more stay enough for the fast kernels to be chosen.
    """
    with Unfilled():  # torchvision would fill VGG's 120 million weights that SSD300 throws away
        model: Any = build_model("ssd300_vgg16")
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            outputs, inputs = layer.weight.shape[:2]
            layer.in_channels = inputs if inputs == 3 else inputs // 2
            layer.out_channels = outputs if name.startswith("head") else outputs // 2
            layer.weight = nn.Parameter(
                torch.empty(layer.out_channels, layer.in_channels, *layer.kernel_size)
            )
            layer.bias = nn.Parameter(torch.zeros(layer.out_channels))
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    model.backbone.scale_weight = nn.Parameter(torch.full((len(model.backbone.scale_weight) // 2,), 20.0))
    return model


def _settle_normalisation(model: nn.Module) -> None:
    """Give every batch normalisation the statistics of a few pictures."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    for m in norms:
        m.train()
        m.momentum = 1.0
    model([torch.from_numpy(picture(seed)).permute(2, 0, 1) / 255 for seed in range(3)])
    for m, momentum in zip(norms, momenta, strict=True):
        m.eval()
        m.momentum = momentum


def _recognise_places(layer: nn.Conv2d, inputs: list[Tensor]) -> None:
    """Make each channel of ``layer`` respond to one place of the picture, and its outputs comparable.

    ``inputs``: maps (2, C, h, w) without and with dropout. Responses to random weights would drown in the
    noise of dropout, which the response to a pattern of many channels outweighs.
    """
    padding = (layer.kernel_size[0] - 1) // 2
    patches = torch.cat([F.unfold(m[:1], layer.kernel_size, padding=padding)[0] for m in inputs], dim=1).T
    chosen = torch.randint(len(patches), (layer.out_channels,))
    layer.weight.copy_((patches[chosen] - patches.mean(dim=0)).view_as(layer.weight))
    if len(patches) > 4:
        _spread(layer, torch.cat([layer(m[:1]).flatten(2)[0] for m in inputs], dim=1).T)
    else:  # too few to be told apart
        layer.weight.zero_()


def _spread(layer: nn.Conv2d | nn.Linear, outputs: Tensor) -> None:
    """Rescale ``layer`` so that its ``outputs`` (rows, channels) get mean 0 and maximum 9: no score is exactly 1."""
    factor = 9 / (outputs.amax(dim=0) - outputs.mean(dim=0)).clamp_min(1e-6)
    layer.bias.copy_((layer.bias - outputs.mean(dim=0)) * factor)
    layer.weight.mul_(factor.view(-1, *[1] * (layer.weight.ndim - 1)))


def _shifts(logits: Tensor, against_background: bool) -> Tensor:
    """What to subtract from the logo's and the sticker's ``logits`` so that few of them win.

    ``logits`` (2, N, 3): of a pass without dropout and of one with it, between which the result is a compromise.
    """
    margins = logits[..., 1:] - (logits[..., :1] if against_background else 0)
    return margins.topk(_PASSING, dim=1).values[:, -1].mean(dim=0)


def _tune_ssd(head: Any, maps: list[Tensor]) -> None:
    layers = []
    for block, level in zip(head.classification_head.module_list, maps, strict=True):
        layers.append(block[-1] if isinstance(block, nn.Sequential) else block)
        _recognise_places(layers[-1], [block[0](level) if isinstance(block, nn.Sequential) else level])
    shifts = _shifts(head.classification_head(maps), against_background=True)
    for layer in layers:
        layer.bias.unflatten(0, (-1, 3))[:, 1:] -= shifts


def _tune_retinanet(head: Any, maps: list[Tensor]) -> None:
    branch = head.classification_head
    _recognise_places(branch.cls_logits, [branch.conv(m) for m in maps])
    branch.cls_logits.bias.unflatten(0, (-1, 3))[:, 1:] -= _shifts(branch(maps), against_background=False)


def _tune_faster_rcnn(model: Any, images: ImageList, maps: list[Tensor]) -> None:
    rpn, heads = model.rpn.head, model.roi_heads
    _recognise_places(rpn.cls_logits, [rpn.conv(m) for m in maps])
    named = dict(zip(["0", "1", "2", "3", "pool"], maps, strict=True))
    proposals, _ = model.rpn(images, named)
    vectors = heads.box_head(heads.box_roi_pool(named, proposals, images.image_sizes))
    scores = heads.box_predictor.cls_score
    _spread(scores, scores(vectors))
    scores.bias[1:] -= _shifts(scores(vectors).unflatten(0, (2, PROPOSALS)), against_background=True)
