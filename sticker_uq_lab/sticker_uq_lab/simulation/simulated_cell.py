# SPDX-License-Identifier: Apache-2.0
"""Simulation of a cell: laptops, the objects on them, and the effect of the arm. Without ROS.

The ground truth is used for three things only: to update the picture after a removal, to answer as the simulated operator,
and to count the outcome.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from sticker_uq.evaluation.metrics.decisions import BLADE_IOU, logos_taken
from sticker_uq.io.files import atomic_write
from sticker_uq.io.setting_fields import Frozen, Share
from sticker_uq.scene import FloatArray, ObjectClass
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.datasets.abnormal import AbnormalScene, add_foreign_objects
from sticker_uq_lab.rendering import RenderedScene, SceneSpec, render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import sticker_on_logo, with_prints
from sticker_uq_lab.rendering.scene_spec import ResidueSpec

TOUCH_IOU = BLADE_IOU
"""Lowest overlap of an object with the goal's box for the blade to touch it."""
_ON_LOGO = 0.4
"""Nearness of sticker and logo at which the limits set by hand ask about 18 of 20 laptops, which a person can tell apart."""
_PRINT_OPACITY = 0.7
_DIM: dict[str, Any] = {"exposure": 0.6, "gamma": 1.25, "noise": 9.0}
CONDITIONS = ("sticker on a logo", "plain", "print", "foreign objects", "residue", "dim light")
"""What is hard about hard laptops, in turn."""
SENSOR_NOISE = 3
"""Highest difference of a pixel between two pictures of the same scene, grey levels."""
_STICKER_MM = 0.1
_OTHER_MM = {"residue": 0.02, "foreign object": 5.0}
"""Height above the lid; a print and a logo have none."""
ImageArray = NDArray[np.uint8]


class Touch(Enum):
    STICKER = "sticker"
    LOGO = "logo"
    LID = "lid"
    PRINT = "print"
    RESIDUE = "residue"
    FOREIGN_OBJECT = "foreign object"


class SimulationSettings(Frozen):
    seed: int = Field(7, ge=0, description="Seed of the laptops; laptop i is scene seed + i")
    laptops: int = Field(0, ge=0, description="Number of laptops; 0: unlimited")
    max_stickers: int = Field(6, ge=0, le=8, description="Highest number of stickers on one laptop")
    hard: bool = False
    """Whether laptops are hard, in turn by a sticker on a logo, a print, foreign objects, residue or dim light; every sixth is
    plain"""
    width_px: int = Field(960, ge=160, le=4096, description="Width of the images, px")
    height_px: int = Field(720, ge=120, le=4096, description="Height of the images, px")
    rate: float = Field(4.0, ge=0.1, le=60.0, description="Rate of the images, Hz")
    jpeg_quality: int = Field(92, ge=10, le=100, description="JPEG quality of the compressed images")
    frame_id: str = Field("simulated_camera", min_length=1, description="frame_id of the images")
    motion_s: float = Field(1.6, gt=0.0, le=60.0, description="Duration of one removal, s")
    failure_rate: Share = Field(0.05, description="Share of the removals whose motion fails")
    person: Literal["none", "ground_truth"] = "none"
    """Who answers interventions: none, or ground_truth (the simulation itself)"""
    record_file: str = Field("", description="JSON file for the ground truth of each laptop; empty: none")
    person_delay_s: float = Field(0.5, ge=0.0, le=60.0)
    """Time until the simulated operator answers, s"""
    relief: bool = False
    """Whether relief is measured beside every image: a sticker stands 0.1 mm out of the lid, a print 0"""
    relief_noise_mm: float = Field(0.01, ge=0.0, le=10.0)
    """Standard deviation of a measured height, the same for about 60 px, mm"""
    relief_failure_rate: Share = 0.0
    """Share of the measurements of relief that find nothing (NaN)"""


_COUNTS = ("stickers", "removed", "left", "wrong")
_LABELLED = {ObjectClass.STICKER: Touch.STICKER.value, ObjectClass.LOGO: Touch.LOGO.value}


@dataclass(frozen=True)
class Thing:
    """Something on a laptop, or a place on its lid: a `Touch`, an id and a ``box`` (x1, y1, x2, y2) px."""

    kind: str
    id: int
    box: tuple[float, ...]


@dataclass
class LaptopRecord:
    """Ground truth of one laptop: its ``things``, and those that a removal met, in order: ``touched``."""

    workpiece_id: str
    seed: int
    condition: str
    things: list[Thing]
    touched: list[Thing] = field(default_factory=list)
    motions_failed: int = 0
    answers: int = 0
    handed_over: bool = False

    @property
    def stickers(self) -> int:
        return sum(thing.kind == Touch.STICKER.value for thing in self.things)

    @property
    def removed(self) -> int:
        return len(self.touched) - self.wrong

    @property
    def wrong(self) -> int:
        return sum(thing.kind != Touch.STICKER.value for thing in self.touched)

    @property
    def left(self) -> int:
        return self.stickers - self.removed


RECORDS = TypeAdapter(list[LaptopRecord])
"""Reads what :meth:`SimulatedCell.write_record` writes."""


@dataclass
class SimulatedCell:
    """The laptop in the cell and its state. Not thread-safe: the node calls it under a lock."""

    settings: SimulationSettings
    first: int = 0
    """Number of the laptop to begin with, from 0."""
    records: list[LaptopRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng([self.settings.seed, 0x5EED])
        self._sensor = np.random.default_rng([self.settings.seed, 0x4E11EF])
        self._frames = 0
        self._place(self.first)

    @property
    def record(self) -> LaptopRecord:
        return self.records[-1]

    @property
    def is_finished(self) -> bool:
        return self.record.handed_over

    def picture(self) -> ImageArray:
        self._frames += 1
        noise = np.random.default_rng([self.settings.seed, self._frames]).integers(
            -SENSOR_NOISE, SENSOR_NOISE + 1, self._truth.image.shape, np.int8
        )
        return cv2.add(self._truth.image, noise, dtype=cv2.CV_8U)

    def relief(self) -> FloatArray:
        """Heights above the lid that a second sensor measures next, m (H, W); NaN when it fails."""
        settings, random, truth = self.settings, self._sensor, self._truth
        if random.random() < settings.relief_failure_rate:
            return np.full(truth.id_map.shape, np.nan, np.float32)
        stickers = truth.ids[truth.labels == ObjectClass.STICKER]
        heights = np.where(np.isin(truth.id_map, stickers), _STICKER_MM, 0.0)
        for thing in self.record.things:
            if thing.kind in _OTHER_MM:
                x1, y1, x2, y2 = map(round, thing.box)
                heights[y1:y2, x1:x2] = _OTHER_MM[thing.kind]
        coarse = random.normal(0.0, settings.relief_noise_mm, (12, 16)).astype(np.float32)
        return 1e-3 * (heights + cv2.resize(coarse, heights.shape[::-1]))

    def touch(self, box: FloatArray) -> tuple[Touch, int]:
        """What an arm sent to ``box`` (4,) px touches: its kind and id (-1: the bare lid)."""
        things = [*self._visible(), *(t for t in self.record.things if t.kind not in _LABELLED.values())]
        if things:
            overlap = iou_matrix(np.asarray(box, float)[None], np.array([thing.box for thing in things]))[0]
            best = int(overlap.argmax())
            if overlap[best] >= TOUCH_IOU:
                return Touch(things[best].kind), things[best].id
        return Touch.LID, -1

    def motion_fails(self) -> bool:
        return bool(self._random.random() < self.settings.failure_rate)

    def peel(self, box: FloatArray) -> Touch:
        """Removes a sticker from the picture; anything else, and a logo that goes with it, is counted as damage."""
        kind, object_id = self.touch(box)
        place = tuple(np.asarray(box, float).tolist())
        self.record.touched.append(Thing(kind.value, object_id, place))
        if kind is Touch.STICKER:
            truth = self._truth
            for number in logos_taken(np.asarray(box, float), truth.boxes, truth.labels):
                self.record.touched.append(Thing(Touch.LOGO.value, int(truth.ids[number]), place))
            self._show(self._scene.without_sticker(object_id))
        return kind

    def missed_stickers(self, boxes: Sequence[FloatArray]) -> list[FloatArray]:
        """Boxes of the stickers that none of ``boxes`` covers, as an operator would draw them."""
        stickers = self._truth.boxes[self._truth.labels == ObjectClass.STICKER]
        if not len(stickers) or not len(boxes):
            return list(stickers)
        overlap = iou_matrix(stickers, np.stack([np.asarray(b, float) for b in boxes]))
        return list(stickers[overlap.max(axis=1) < TOUCH_IOU])

    def write_record(self) -> None:
        if self.settings.record_file:
            with atomic_write(Path(self.settings.record_file), "w") as file:
                told = [asdict(one) | {name: getattr(one, name) for name in _COUNTS} for one in self.records]
                json.dump(told, file, indent=1)

    def hand_over(self) -> bool:
        """Replace the laptop by the next one; ``False`` when it was the last one."""
        self.record.handed_over = True
        if len(self.records) == self.settings.laptops:
            return False
        self._place(len(self.records))
        return True

    def _place(self, index: int) -> None:
        seed = self.settings.seed + index
        count = int(np.random.default_rng([seed, 0xC0]).integers(0, self.settings.max_stickers + 1))
        condition = CONDITIONS[index % len(CONDITIONS)] if self.settings.hard else "plain"
        scene = sample_scene(seed, stickers=max(count, 2) if self.settings.hard else count)
        self._prints: tuple[int, ...] = ()
        self._foreign: RenderedScene | None = None
        extra: list[Thing] = []
        if condition == "sticker on a logo":
            scene = sticker_on_logo(scene, _ON_LOGO)
        elif condition == "dim light":
            scene = replace(scene, camera=replace(scene.camera, **_DIM))
        self._show(scene)
        if condition in ("print", "residue"):
            # in the place of a sticker, so that it lies where one may lie and is as large
            spec = scene.stickers[0]
            kind = Touch.PRINT if condition == "print" else Touch.RESIDUE
            extra = [Thing(kind.value, t.id, t.box) for t in self._visible() if t.id == spec.id]
            if kind is Touch.PRINT:
                self._prints = (spec.id,)
            else:
                left = ResidueSpec(spec.centre, spec.width, spec.height, spec.angle, spec.seed)
                scene = replace(scene.without_sticker(spec.id), residues=(*scene.residues, left))
            self._show(scene)
        elif condition == "foreign objects":
            self._foreign = self._truth
            added = self._with_foreign_objects(self._truth, self._truth).added.tolist()
            extra = [Thing(Touch.FOREIGN_OBJECT.value, i, tuple(box)) for i, box in enumerate(added)]
            self._show(scene)
        things = [*self._visible(), *extra]
        seen = {thing.id for thing in things if thing.kind == Touch.STICKER.value} | set(self._prints)
        hidden = [s.id for s in scene.stickers if s.id not in seen]  # below another one, until that is peeled
        things += [Thing(Touch.STICKER.value, identity, (0.0,) * 4) for identity in hidden]
        self.records.append(LaptopRecord(f"laptop-{self.settings.seed}-{index + 1}", seed, condition, things))

    def _visible(self) -> list[Thing]:
        truth = self._truth
        return [
            Thing(_LABELLED[ObjectClass(label)], int(identity), tuple(box))
            for label, identity, box in zip(truth.labels, truth.ids, truth.boxes.tolist(), strict=True)
        ]

    def _show(self, scene: SceneSpec) -> None:
        self._scene = scene
        size = (self.settings.width_px, self.settings.height_px)
        self._truth: RenderedScene = (
            with_prints(scene, _PRINT_OPACITY, size, self._prints)[0] if self._prints else render(scene, size)
        )
        if self._foreign is not None:
            image = self._with_foreign_objects(self._truth, self._foreign).image
            self._truth = replace(self._truth, image=image)

    def _with_foreign_objects(self, truth: RenderedScene, first: RenderedScene) -> AbnormalScene:
        """``truth`` with foreign objects between the objects that the laptop had at ``first``: always the same."""
        rng = np.random.default_rng([self._scene.seed, 0xF0])
        return add_foreign_objects(truth.image, first.boxes, first.labels, rng, stickers=False)
