# SPDX-License-Identifier: Apache-2.0
"""The sticker detection models, six as torchvision builds them, and how each is computed."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from torch import nn
from torchvision.models import get_model
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator

from sticker_uq.detection.kernels.fast_faster_rcnn import BatchedFasterRcnn, FastFasterRcnn
from sticker_uq.detection.kernels.fast_ssd import FastSsd
from sticker_uq.detection.models.family import Family
from sticker_uq.detection.models.faster_rcnn import FasterRcnn
from sticker_uq.detection.models.mobilenet_v2 import mobilenet_v2_ssdlite
from sticker_uq.detection.models.retinanet import RetinaNet
from sticker_uq.detection.models.ssd import Ssd
from sticker_uq.detection.registry import Build, DetectorEntry, detector_entry
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.scene import CLASS_COUNT, InvalidInput

_LONG_SIDE = 1333 / 800  # torchvision's ratio between the longest and the shortest side of a resized image
LARGEST_INPUT = 2048
"""Px of an SSD's input."""
MOST_SCALE = 2.0
"""Largest default box as a share of the image."""
_FEW = {"rpn_pre_nms_top_n_train": 500, "rpn_post_nms_top_n_train": 200, "box_batch_size_per_image": 40}
"""Faster R-CNN in training: a lid bears a few objects, so torchvision's 2000 proposals and 512 samples are waste."""


def build_model(
    name: str,
    *,
    min_size: int | None = None,
    num_classes: int = CLASS_COUNT,
    input_size: int = 0,
    anchor_scales: Sequence[float] = (),
) -> nn.Module:
    """The network of detector ``name`` with random weights, in training mode, all parameters trainable.

    ``min_size``: shorter side of the resized image in px, FPN models only, None: that of default settings; ``num_classes``
    counts the background. SSDs only: ``input_size``: side of the square that images are resized to, px; ``anchor_scales``:
    sides of the default boxes of each map and one more, as shares of the image; 0 and none: those of torchvision. Raises
    InvalidInput as `detector_entry`, and for a detector or values that do not have these.
    """
    size = DetectorSettings().min_size if min_size is None else min_size
    model = detector_entry(name).build(min_size=size, num_classes=num_classes)
    if input_size or anchor_scales:
        _resize(name, model, input_size, tuple(anchor_scales))
    return model


def _resize(name: str, model: Any, input_size: int, anchor_scales: tuple[float, ...]) -> None:
    generator = getattr(model, "anchor_generator", None)
    if not isinstance(generator, DefaultBoxGenerator):
        raise InvalidInput(f"input_size and anchor_scales are for an SSD, expected none for model {name!r}")
    steps = generator.steps
    if input_size and (input_size, input_size) != model.transform.fixed_size:
        least = min(model.transform.fixed_size)
        if not least <= input_size <= LARGEST_INPUT:
            raise InvalidInput(f"input_size {input_size}: expected {least} to {LARGEST_INPUT} px for {name}")
        model.transform.fixed_size = (input_size, input_size)
        steps = None  # torchvision's steps are those of its own size
    scales = anchor_scales or tuple(generator.scales)
    wanted = len(generator.aspect_ratios) + 1
    if len(scales) != wanted or not all(0 < scale <= MOST_SCALE for scale in scales):
        raise InvalidInput(
            f"anchor_scales {list(scales)}: expected {wanted} shares of the image, above 0 and at most {MOST_SCALE}"
        )
    model.anchor_generator = DefaultBoxGenerator(
        generator.aspect_ratios, scales=list(scales), steps=steps, clip=generator.clip
    )


def _fast_faster_rcnn(model: Any, settings: DetectorSettings) -> Family:
    on_processor = next(model.parameters()).device.type == "cpu"
    return (FastFasterRcnn if on_processor else BatchedFasterRcnn)(model, settings)


def _torchvision_model(name: str, *, min_size: int, num_classes: int, **options: int) -> nn.Module:
    if not name.startswith("ssd"):
        options |= {"min_size": min_size, "max_size": round(min_size * _LONG_SIDE)}
    # Without pretrained weights torchvision gives the ResNets ordinary batch normalisation instead of frozen one, so the model
    # can be trained from scratch; the parameter names are those of torchvision's own weights.
    made = get_model(name, weights=None, weights_backbone=None, num_classes=num_classes, **options)
    return cast(nn.Module, made)


def _faster_rcnn_entry(name: str) -> DetectorEntry:
    return DetectorEntry(
        "faster_rcnn", partial(_torchvision_model, name, **_FEW), FasterRcnn, _fast_faster_rcnn
    )


def _retinanet_entry(name: str) -> DetectorEntry:
    return DetectorEntry("retinanet", partial(_torchvision_model, name), RetinaNet, RetinaNet)


def _ssd_entry(family: str, build: Build) -> DetectorEntry:
    return DetectorEntry(family, build, Ssd, FastSsd, 20, fixed_input_size=True)


# the built-in ones register themselves as detectors of other packages do: each is an entry named like its detector
fasterrcnn_resnet50_fpn = _faster_rcnn_entry("fasterrcnn_resnet50_fpn")
fasterrcnn_resnet50_fpn_v2 = _faster_rcnn_entry("fasterrcnn_resnet50_fpn_v2")
retinanet_resnet50_fpn = _retinanet_entry("retinanet_resnet50_fpn")
retinanet_resnet50_fpn_v2 = _retinanet_entry("retinanet_resnet50_fpn_v2")
ssd300_vgg16 = _ssd_entry("ssd", partial(_torchvision_model, "ssd300_vgg16"))
ssdlite320_mobilenet_v3_large = _ssd_entry(
    "ssdlite", partial(_torchvision_model, "ssdlite320_mobilenet_v3_large")
)
ssdlite320_mobilenet_v2 = _ssd_entry("ssdlite", mobilenet_v2_ssdlite)
