# SPDX-License-Identifier: Apache-2.0
"""Objects of a data set that are too small in the view of a model, which resizes every picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sticker_uq.detection import build_model
from sticker_uq.detection.kernels.pixels import resized_size
from sticker_uq.detection.registry import detector_entry
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import FloatArray, IntArray, ObjectClass

SMALL = 8.0
"""Shorter side in px below which an object is small in a model's view: half a step of the default model's finest feature map."""
MOST_SMALL = 0.1
"""Share of the objects that may be small before a person is told."""
_STEP = 32
_LARGEST = 2048


@dataclass(frozen=True)
class ViewedObjects:
    """Objects of a data set as ``model`` sees them.

    ``sides``: shorter side of each in px after resizing, (N,); ``labels``: its class, (N,); ``relative``: its shorter side as a
    share of that of its picture, (N,); ``fixed``: the model resizes to one size, whatever ``min_size`` is.
    """

    model: str
    sides: FloatArray
    labels: IntArray
    relative: FloatArray
    fixed: bool

    @property
    def small(self) -> float:
        """Share of the data set's objects that are smaller than :data:`SMALL` in the model's view, 0 without any."""
        return float((self.sides < SMALL).mean()) if len(self.sides) else 0.0

    def advice(self) -> str:
        """What a person should know about small objects of a data set, "" when at most :data:`MOST_SMALL` of them are."""
        if self.small <= MOST_SMALL:
            return ""
        shares = [
            f"{small.mean():.0%} of the {label.name.lower()}s"
            for label in (ObjectClass.STICKER, ObjectClass.LOGO)
            if len(small := self.sides[self.labels == label] < SMALL)
        ]
        # so large that at most the share that is accepted stays small
        wanted = SMALL / float(np.quantile(self.relative, MOST_SMALL, method="lower"))
        size = math.ceil(wanted / _STEP) * _STEP
        larger = "a larger --min-size" if not self.fixed else "a model with a larger --min-size"
        if size <= _LARGEST:
            model = " --model fasterrcnn_resnet50_fpn" if self.fixed else ""
            larger = f"train with{model} --min-size {size}, which is slower"
        return (
            f"{' and '.join(shares)} are smaller than {SMALL:g} px in the view of {self.model}, which resizes every "
            f"picture, and are hard to find: let the lid fill the picture (a nearer camera, cropped pictures), or {larger}"
        )


def viewed_objects(items: Sequence[LabelledImage], model: str, min_size: int) -> ViewedObjects:
    """The objects of the data set ``items`` as the detector ``model`` with ``min_size`` sees them."""
    with torch.device("meta"):  # no weights are needed, only how it resizes
        transform = build_model(model, min_size=min_size).transform
    sides, relative, labels = [], [], []
    for item in items:
        height, width = resized_size(transform, item.height, item.width)
        corners = item.boxes[:, 2:] - item.boxes[:, :2]
        sides += (corners * (width / item.width, height / item.height)).min(axis=1).tolist()
        relative += (corners.min(axis=1) / min(item.width, item.height)).tolist()
        labels += item.labels.tolist()
    return ViewedObjects(
        model,
        np.array(sides, np.float64),
        np.array(labels, np.int64),
        np.array(relative, np.float64),
        detector_entry(model).fixed_input_size,
    )
