# SPDX-License-Identifier: Apache-2.0
"""Settings, progress and results of a training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from sticker_uq.detection.settings import DetectorSettings, ModelName
from sticker_uq.io import setting_fields
from sticker_uq.io.setting_fields import same_field

Frozen = Literal["nothing", "statistics", "backbone"]
"""Frozen parts: "statistics" of batch normalisation; "backbone": also all weights but the head's."""


class TrainSettings(setting_fields.Frozen):
    """A bad value raises pydantic's ``ValidationError``."""

    data: tuple[Path, ...] = Field(min_length=1, description="COCO folders to train on")
    out: Path = Field(description="folder for best.safetensors, metrics.csv and the state to resume from")
    model: ModelName = same_field(DetectorSettings, "model")
    val_data: Path | None = None
    """COCO folder to validate on; without one, a tenth of the data"""
    epochs: int = Field(20, ge=1, le=10_000, description="epochs")
    batch_size: int = Field(16, ge=1, le=1024, description="batch size")
    learning_rate: float = Field(0.0, ge=0.0, le=1.0)
    """highest learning rate; 0: the default of the model"""
    start: str = "auto"
    """auto (torchvision's COCO weights if they can be downloaded, else the packaged ones of the model, if any, else photographs
    for ssdlite320_mobilenet_v2), torchvision, packaged, photographs (a backbone that has seen them), random, or a weights file;
    of another model with the same backbone, the backbone is taken"""
    freeze: Frozen = "nothing"
    """what to freeze: nothing, statistics (of batch normalisation), or backbone (with statistics)"""
    exposure: tuple[Path, ...] = ()
    """COCO folders of pictures of what must not be peeled, trained on beside the data and never validated on"""
    dropout: float = Field(0.0, ge=0.0, le=0.9)
    """dropout rate in training, where the stochastic passes drop"""
    input_size: int = Field(0, ge=0, le=2048)
    """SSD models only: side of the input, px; 0: that of start, else of the model"""
    anchor_scales: tuple[float, ...] = ()
    """SSD models only: sides of the default boxes of each map and one more, as shares of the picture; none: those of the model
    where they fit the labels, else smaller ones"""
    photo_head: bool = False
    """whether a head for the second opinion by the network that has seen photographs is fitted too, best_photo.safetensors"""
    min_size: int = same_field(DetectorSettings, "min_size")
    precision: Literal["float32", "bfloat16"] = "float32"
    """precision of convolutions and products; bfloat16 where the hardware multiplies it faster"""
    device: str = same_field(DetectorSettings, "device")
    threads: int = Field(0, ge=0, le=256, description="threads; 0: torch's default")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="seed of initial weights, order and augmentation")


@dataclass(frozen=True)
class Progress:
    """After step number ``step`` of ``steps``: ``images`` trained on so far; ``loss`` smoothed over about 50 steps; ``map50`` of
    the last validation, NaN before; ``seconds``: duration of the step, without the validation.
    """

    epoch: int
    step: int
    steps: int
    images: int
    loss: float
    map50: float
    seconds: float


@dataclass(frozen=True)
class EpochResult:
    """One row of metrics.csv.

    ``loss``: mean over its steps. Of the averaged weights on the validation pictures: ``wrongful``, the share with a wrongful
    release at equal questions (`evaluation.metrics.decisions.wrongful_share`); ``map50``, mAP at IoU 0.5 over the classes that
    they have, NaN without any; ``ap_logo``, ``ap_sticker`` its parts. ``input_size``: px of the network's input, in training
    and validation (FPN models: shorter side).
    """

    epoch: int
    loss: float
    wrongful: float
    map50: float
    ap_logo: float
    ap_sticker: float
    learning_rate: float
    input_size: int
    seconds: float
