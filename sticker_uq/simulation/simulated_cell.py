# SPDX-License-Identifier: Apache-2.0
"""Simulation of a cell: laptops, the objects on them, and the effect of the arm. Without ROS.

The ground truth is used for three things only: to update the picture after a removal, to answer as the simulated operator,
and to count the outcome.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from sticker_uq.io.files import atomic_write
from sticker_uq.lab.rendering import RenderedScene, SceneSpec, render, sample_scene
from sticker_uq.lab.rendering.scene_sampling import sticker_on_logo
from sticker_uq.scene import FloatArray, ObjectClass
from sticker_uq.uncertainty import iou_matrix

TOUCH_IOU = 0.3
"""Lowest overlap of an object with the goal's box for the blade to touch it."""


_ON_LOGO = 0.4
"""Nearness of sticker and logo at which the packaged policy asks about 18 of 20 laptops, and a person can tell the two apart."""
SENSOR_NOISE = 3
"""Highest difference of a pixel between two pictures of the same scene, grey levels."""
ImageArray = NDArray[np.uint8]


class Touch(Enum):
    STICKER = "sticker"
    LOGO = "logo"
    LID = "lid"


class SimulationSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(7, ge=0, description="Seed of the laptops; laptop i is scene seed + i")
    laptops: int = Field(0, ge=0, description="Number of laptops; 0: unlimited")
    max_stickers: int = Field(6, ge=0, le=8, description="Highest number of stickers on one laptop")
    hard: bool = Field(
        False, description="Whether every laptop has two stickers or more, one of them partly on a logo"
    )
    width_px: int = Field(960, ge=160, le=4096, description="Width of the images, px")
    height_px: int = Field(720, ge=120, le=4096, description="Height of the images, px")
    rate: float = Field(4.0, ge=0.1, le=60.0, description="Rate of the images, Hz")
    jpeg_quality: int = Field(92, ge=10, le=100, description="JPEG quality of the compressed images")
    frame_id: str = Field("simulated_camera", min_length=1, description="frame_id of the images")
    motion_s: float = Field(1.6, gt=0.0, le=60.0, description="Duration of one removal, s")
    failure_rate: float = Field(0.05, ge=0.0, le=1.0, description="Share of the removals whose motion fails")
    person: Literal["none", "ground_truth"] = Field(
        "none", description="Who answers interventions: none, or ground_truth (the simulation itself)"
    )
    record_file: str = Field("", description="JSON file for the ground truth of each laptop; empty: none")
    person_delay_s: float = Field(
        0.5, ge=0.0, le=60.0, description="Time until the simulated operator answers, s"
    )


@dataclass
class LaptopRecord:
    workpiece_id: str
    seed: int
    stickers: int
    removed: int = 0
    logos_touched: int = 0
    lid_touched: int = 0
    motions_failed: int = 0
    answers: int = 0
    handed_over: bool = False

    @property
    def left(self) -> int:
        return self.stickers - self.removed


@dataclass(frozen=True)
class TrueAnswer:
    """Answer of the simulated operator about a box: its true class, BACKGROUND for nothing."""

    box: FloatArray
    truth: ObjectClass


@dataclass
class SimulatedCell:
    """The laptop in the cell and its state. Not thread-safe: the node calls it under a lock."""

    settings: SimulationSettings
    records: list[LaptopRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng([self.settings.seed, 0x5EED])
        self._frames = 0
        self._place(0)

    @property
    def record(self) -> LaptopRecord:
        return self.records[-1]

    @property
    def finished(self) -> bool:
        return self.record.handed_over

    def picture(self) -> ImageArray:
        """What the simulated cell's camera sees of the laptop next, BGR uint8 (H, W, 3); with new sensor noise each time."""
        self._frames += 1
        noise = np.random.default_rng([self.settings.seed, self._frames]).integers(
            -SENSOR_NOISE, SENSOR_NOISE + 1, self._truth.image.shape, np.int8
        )
        return cv2.add(self._truth.image, noise, dtype=cv2.CV_8U)

    def touched_by(self, box: FloatArray) -> tuple[Touch, int]:
        """What an arm sent to ``box`` (4,) px of the simulated laptop touches: kind and id of sticker or logo (-1: the lid)."""
        truth = self._truth
        if len(truth.boxes):
            overlap = iou_matrix(np.asarray(box, float)[None], truth.boxes)[0]
            best = int(overlap.argmax())
            if overlap[best] >= TOUCH_IOU:
                kind = Touch.STICKER if truth.labels[best] == ObjectClass.STICKER else Touch.LOGO
                return kind, int(truth.ids[best])
        return Touch.LID, -1

    def motion_fails(self) -> bool:
        return bool(self._random.random() < self.settings.failure_rate)

    def peel(self, box: FloatArray) -> Touch:
        """Peel at ``box`` of the simulated laptop: removes a sticker from the picture; anything else is counted as damage."""
        kind, object_id = self.touched_by(box)
        if kind is Touch.STICKER:
            self._show(self._scene.without_sticker(object_id))
            self.record.removed += 1
        elif kind is Touch.LOGO:
            self.record.logos_touched += 1
        else:
            self.record.lid_touched += 1
        return kind

    def answers_for(self, boxes: Sequence[FloatArray]) -> list[TrueAnswer]:
        answers = []
        for box in boxes:
            kind, _ = self.touched_by(box)
            truth = {
                Touch.STICKER: ObjectClass.STICKER,
                Touch.LOGO: ObjectClass.LOGO,
                Touch.LID: ObjectClass.BACKGROUND,
            }[kind]
            answers.append(TrueAnswer(np.asarray(box, np.float32), truth))
        return answers

    def missed(self, boxes: Sequence[FloatArray]) -> list[FloatArray]:
        """Boxes of the simulated laptop's stickers that none of ``boxes`` covers, as an operator would draw them."""
        stickers = self._truth.boxes[self._truth.labels == ObjectClass.STICKER]
        if not len(stickers) or not len(boxes):
            return list(stickers)
        overlap = iou_matrix(stickers, np.stack([np.asarray(b, float) for b in boxes]))
        return list(stickers[overlap.max(axis=1) < TOUCH_IOU])

    def write_record(self) -> None:
        if self.settings.record_file:
            with atomic_write(Path(self.settings.record_file), "w") as file:
                json.dump([asdict(record) for record in self.records], file, indent=1)

    def hand_over(self) -> bool:
        """Replace the simulated laptop by the next one; ``False`` when it was the last one."""
        self.record.handed_over = True
        if len(self.records) == self.settings.laptops:
            return False
        self._place(len(self.records))
        return True

    def _place(self, index: int) -> None:
        seed = self.settings.seed + index
        count = int(np.random.default_rng([seed, 0xC0]).integers(0, self.settings.max_stickers + 1))
        if self.settings.hard:
            scene = sticker_on_logo(sample_scene(seed, stickers=max(count, 2)), _ON_LOGO)
        else:
            scene = sample_scene(seed, stickers=count)
        self._show(scene)
        stickers = len(self._scene.stickers)
        self.records.append(LaptopRecord(f"laptop-{self.settings.seed}-{index + 1}", seed, stickers))

    def _show(self, scene: SceneSpec) -> None:
        self._scene = scene
        self._truth: RenderedScene = render(scene, (self.settings.width_px, self.settings.height_px))
