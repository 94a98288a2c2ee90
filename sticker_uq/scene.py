# SPDX-License-Identifier: Apache-2.0
"""Types of a scene, shared by all packages: detections, objects, monitor scores, assessment, reasons, verdicts, decision, and
their digests.

Frozen dataclasses over NumPy arrays. This module imports no torch, and of ours `plain` alone. Boxes are ``(x1, y1, x2, y2)``
in pixels of the original image (x right, y down), areas in px^2, entropies in bits, probabilities in the order background,
logo, sticker. Numbers that cannot be measured are NaN, never a made-up value.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sticker_uq.plain import to_plain

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
Rng = np.random.Generator


class InvalidInput(ValueError):
    """A value from outside that cannot be used. The message names the value and what was expected."""


class InvalidFile(InvalidInput):
    """A file with several faults. ``lines`` has one fault each; the message joins them with "; "."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class DeviceFailed(RuntimeError):
    """The device that computes cannot be used any more by this process; another process may use it."""


class ObjectClass(IntEnum):
    """Classes of the published sticker detection models, in the order of every probability vector."""

    BACKGROUND = 0
    LOGO = 1
    STICKER = 2


CLASS_COUNT = len(ObjectClass)


@dataclass(frozen=True)
class Metric:
    """An uncertainty metric of an object and, as the mean over its objects, of an image. 0 is certain, more is less certain.

    ``short``: symbol; ``words``: name in a sentence; ``meaning``: one sentence for reports; ``unit``: empty for a number without
    one; ``highest``: its largest possible value; ``relative``: name of its form divided by the area of the mean box, empty where
    objects of any size compare already.
    """

    short: str
    words: str
    meaning: str
    unit: str = ""
    highest: float = math.inf
    relative: str = ""


METRICS = {
    "variation_ratio": Metric(
        "VR",
        "variation ratio",
        "Share of the passes that named another class than the majority. 0: all agree.",
        highest=(CLASS_COUNT - 1) / CLASS_COUNT,
    ),
    "shannon_entropy": Metric(
        "SE",
        "Shannon entropy",
        "How undecided the mean class probabilities are. 0: one class for certain, 1.58: no idea at all.",
        "bit",
        highest=math.log2(CLASS_COUNT),
    ),
    "mutual_information": Metric(
        "MI",
        "mutual information",
        "How much the passes contradict each other: the part of the entropy that more training data could remove.",
        "bit",
        highest=math.log2(CLASS_COUNT),
    ),
    "total_variance": Metric(
        "TV",
        "total variance",
        "How much the edges of the box move from pass to pass.",
        "px^2",
        relative="relative_total_variance",
    ),
    "predictive_surface": Metric(
        "PS",
        "predictive surface",
        "The area over which the corners of the box move from pass to pass.",
        "px^2",
        relative="relative_predictive_surface",
    ),
    "relative_total_variance": Metric(
        "TV/area",
        "total variance over box area",
        "How much the edges of the box move from pass to pass, relative to the size of the object.",
    ),
    "relative_predictive_surface": Metric(
        "PS/area",
        "predictive surface over box area",
        "The area over which the corners of the box move from pass to pass, relative to the size of the object.",
    ),
}
"""The uncertainty metrics (Lu et al., section 3.2) by the names of their fields in :class:`MetricValues` and in messages."""

MONITOR_SIGNAL = "monitor."
"""What the name of a signal begins with that a monitor of the panel gives; the name of the monitor follows."""


class Status(IntEnum):
    """Whether an assessment can be used. UNKNOWN and FAILED close the gate."""

    UNKNOWN = 0
    OK = 1
    DEGRADED = 2
    FAILED = 3


class Verdict(IntEnum):
    """What the policy decides about one object. UNKNOWN blocks like ASK."""

    UNKNOWN = 0
    REMOVE = 1
    KEEP = 2
    ASK = 3


class Outcome(IntEnum):
    """What the policy decides about one scene. UNKNOWN blocks like BLOCKED."""

    UNKNOWN = 0
    WORK = 1
    ASK = 2
    CLEAN = 3
    BLOCKED = 4


@dataclass(frozen=True)
class Detections:
    """Detections of one pass or of the deterministic detector in an image.

    ``boxes`` (N, 4) float32 px; ``probabilities`` (N, 3) float32, rows sum to 1.
    """

    boxes: FloatArray
    probabilities: FloatArray

    def __post_init__(self) -> None:
        n = len(self.boxes)
        if self.boxes.shape != (n, 4) or self.probabilities.shape != (n, CLASS_COUNT):
            raise InvalidInput(
                f"detections need boxes (N, 4) and probabilities (N, {CLASS_COUNT}), got {self.boxes.shape} and "
                f"{self.probabilities.shape}"
            )

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def labels(self) -> IntArray:
        """The most probable class of each detection, background included, (N,) int64."""
        return self.probabilities.argmax(axis=1)

    @property
    def foreground_labels(self) -> IntArray:
        """The most probable class other than background of each detection, (N,) int64."""
        return self.probabilities[:, 1:].argmax(axis=1) + 1

    @property
    def scores(self) -> FloatArray:
        """The probability of the foreground label of each detection, (N,)."""
        return self.probabilities[:, 1:].max(axis=1) if len(self) else np.zeros(0, np.float32)


@dataclass(frozen=True)
class StochasticSamples:
    """Detections of T stochastic passes over one image, as flat arrays.

    ``boxes`` (N, 4) float32 px; ``probabilities`` (N, 3) float32, rows sum to 1; ``pass_index`` (N,) int64 in
    [0, ``passes``): the pass each row came from.
    """

    boxes: FloatArray
    probabilities: FloatArray
    pass_index: IntArray
    passes: int

    def __post_init__(self) -> None:
        n = len(self.boxes)
        shapes = (self.boxes.shape, self.probabilities.shape, self.pass_index.shape)
        if shapes != ((n, 4), (n, CLASS_COUNT), (n,)):
            raise InvalidInput(f"samples need shapes (N, 4), (N, {CLASS_COUNT}), (N,), got {shapes}")
        if self.passes < 1 or (n and (self.pass_index.min() < 0 or self.pass_index.max() >= self.passes)):
            raise InvalidInput(
                f"pass indices must lie in [0, {self.passes}) and there must be at least one pass"
            )

    def __len__(self) -> int:
        return len(self.boxes)

    def select(self, rows: IntArray) -> StochasticSamples:
        """The same passes with ``rows`` (M,) of their detections alone, in that order."""
        boxes, probabilities, passes = self.boxes[rows], self.probabilities[rows], self.pass_index[rows]
        return StochasticSamples(boxes, probabilities, passes, self.passes)


@dataclass(frozen=True)
class MonitorScore:
    """What the monitor ``name`` of the panel says about one object: ``score``, higher = less trustworthy, in its own unit;
    ``limit``: the highest one that it does not object to.
    """

    name: str
    score: float
    limit: float

    @property
    def objection(self) -> bool:
        """Whether the monitor objects: its score is above the limit, or one of the two is NaN."""
        return not self.score <= self.limit


@dataclass(frozen=True, kw_only=True)
class MetricValues:
    """A value for each of :data:`METRICS`; NaN where it was not measured."""

    variation_ratio: float = math.nan
    shannon_entropy: float = math.nan
    mutual_information: float = math.nan
    total_variance: float = math.nan
    predictive_surface: float = math.nan
    relative_total_variance: float = math.nan
    relative_predictive_surface: float = math.nan


@dataclass(frozen=True)
class ObservedObject(MetricValues):
    """One object: the cluster of boxes that the T passes drew around the same thing (Lu et al., section 3.2).

    ``box`` (4,) float32 mean box px; ``probabilities`` (3,) float32 mean class vector; ``detections`` boxes of the cluster;
    ``passes`` distinct passes that saw it (K of T); ``detection_rate`` K / T; ``duplicated``: one pass contributed two boxes;
    ``box_covariance`` (4, 4) px^2; ``corner_hulls`` four (V, 2) float32 polygons px: top left, top right, bottom left, bottom
    right. Boxes, probabilities and hulls are float32 so that a ROS message carries them without loss. An ``unstable`` object was
    seen in too few passes to cluster: its metrics are NaN. ``monitors``: what the panel says about it; empty without a panel.
    ``novelty``: mean probability 0..1 that the places under its box were never shown to the detector, NaN: not measured.
    ``single_pass``: probability of sticker that one pass without dropout gives it, 0 where that pass does not see it, NaN: not
    measured; ``close_up``: that of such a pass over its enlarged surroundings, NaN too where a sticker is out of the question;
    ``photo``: that by a network which has seen photographs, NaN as for the close-up.
    ``label``: the most probable class, or sticker where that is background but passes and close-up say so on average.
    """

    id: int
    label: ObjectClass
    box: FloatArray
    probabilities: FloatArray
    detections: int
    passes: int
    detection_rate: float
    duplicated: bool
    unstable: bool
    box_covariance: FloatArray
    corner_hulls: tuple[FloatArray, ...]
    monitors: tuple[MonitorScore, ...] = ()
    novelty: float = float("nan")
    single_pass: float = float("nan")
    close_up: float = float("nan")
    photo: float = float("nan")

    @classmethod
    def from_operator(cls, object_id: int, label: ObjectClass, box: FloatArray) -> ObservedObject:
        """An object that only a person saw: its place ``box`` (4,) px is known, nothing about it was measured."""
        return cls(
            id=object_id,
            label=label,
            box=np.asarray(box, np.float32),
            probabilities=np.full(CLASS_COUNT, np.nan, np.float32),
            detections=0,
            passes=0,
            detection_rate=0.0,
            duplicated=False,
            unstable=True,
            box_covariance=np.full((4, 4), np.nan),
            corner_hulls=(),
        )

    def __repr__(self) -> str:
        return f"{self.label.name} {self.score:.3f} at [{', '.join(f'{x:.0f}' for x in self.box)}]"

    @property
    def over_all_passes(self) -> FloatArray:
        """The mean class vector (3,) over all T passes; one that did not see the object says background."""
        vector = self.detection_rate * np.asarray(self.probabilities, float)
        vector[ObjectClass.BACKGROUND] = 1.0 - vector[ObjectClass.LOGO] - vector[ObjectClass.STICKER]
        return vector

    @property
    def score(self) -> float:
        """The mean probability of the label, 0..1."""
        return float(self.probabilities[self.label])


@dataclass(frozen=True)
class ImageUncertainty(MetricValues):
    """Means of the metrics over the clustered objects of one image (Lu et al., end of section 3.2.4).

    NaN when nothing was clustered. ``objects`` and ``unstable`` are counts.
    """

    objects: int
    unstable: int


@dataclass(frozen=True)
class UnexplainedRegion:
    """A place in a scene where the detector saw something that no predicted box explains.

    ``box`` (4,) float32 px; ``objectness``: the largest one there, 0..1; ``share``: its part of BL, 0..1.
    """

    box: FloatArray
    objectness: float
    share: float


@dataclass(frozen=True)
class Localization:
    """Distinctive localization (DiL) of one image (DiL paper, eq 1-6).

    ``complete_localization`` CL and ``background_localization`` BL: sums of saliency; ``dil`` = BL / CL in [0, 1], NaN when CL is
    0, 1 when there is saliency but no box; ``decision_threshold``: dynamic decision threshold, a probability; ``saliency`` (H, W)
    float32, only when asked for; ``unexplained_objectness``: the largest objectness 0..1 of an anchor that no predicted box
    explains, NaN where it was not measured; ``unexplained``: the places where it is high, by falling objectness; ``novelty``: how
    probably the most novel places were never shown to the detector, and ``missed_sticker_probability``: how probably a sticker is
    visible that no predicted box shows, by the novelty network or the last look; both 0..1; ``obstruction``: how probably a hand
    or a gripper is in front of the laptop, 0..1; NaN: not measured.
    """

    complete_localization: float
    background_localization: float
    dil: float
    decision_threshold: float
    saliency: FloatArray | None = None
    unexplained_objectness: float = float("nan")
    unexplained: tuple[UnexplainedRegion, ...] = ()
    novelty: float = float("nan")
    missed_sticker_probability: float = float("nan")
    obstruction: float = float("nan")


@dataclass(frozen=True)
class Exposure:
    """How one image was taken: ``mean_level`` mean grey level 0..255; ``dark_share`` and ``saturated_share`` of its pixels 0..1
    that are too dark or too bright to tell anything; ``noise`` and ``sharpness`` standard deviations of single pixels' noise and
    of the Laplacian, grey levels, NaN where they were not measured.
    """

    mean_level: float
    dark_share: float
    saturated_share: float
    noise: float = float("nan")
    sharpness: float = float("nan")


@dataclass(frozen=True)
class ImageCheck:
    """What is known about one image as soon as it has arrived, before any model looks at it.

    ``problem``: why it cannot be used, empty when it can; without a usable image ``image_size`` (width, height) px is (0, 0) and
    ``exposure`` None. ``repeats``: images in a row, this one included, with exactly these pixels. ``previous_stamp_ns``: stamp
    of the image that arrived before it, 0 for the first. ``image_publishers``: as in :class:`SceneAssessment`.
    """

    stamp_ns: int
    frame_id: str
    problem: str = ""
    image_size: tuple[int, int] = (0, 0)
    exposure: Exposure | None = None
    repeats: int = 1
    previous_stamp_ns: int = 0
    image_publishers: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SceneAssessment:
    """What perception says about one image: the one value that crosses from perception to decision.

    ``stamp_ns`` and ``frame_id`` are those of the image; ``image_digest`` identifies its pixels; ``image_size`` is (width,
    height) px; ``model_hash`` and ``settings_hash`` say what made it; ``timings`` maps a stage to milliseconds and is not part
    of the identity of the assessment; ``exposure`` is None when it was not measured; ``panel_hash`` says which monitors had
    a vote, empty where none had; ``device``: what computed it, as in "cpu, engine 3" or "cuda:0 NVIDIA H200, engine 3", and
    ``precision``: in which numbers, both empty where that is unknown. ``image_publishers``: the nodes that published the camera's
    images then, one for each publisher; None for an image that no node published. ``scene_distance``: how far the scene as a
    whole lies from the training pictures of the novelty network, 1 at the limit of that network, NaN where none measured it.
    """

    stamp_ns: int
    frame_id: str
    status: Status
    status_text: str
    image_size: tuple[int, int]
    image_digest: str
    model: str
    model_hash: str
    settings_hash: str
    passes: int
    dropout_rate: float
    objects: tuple[ObservedObject, ...]
    unstable: tuple[ObservedObject, ...]
    uncertainty: ImageUncertainty
    localization: Localization | None
    timings: dict[str, float] = field(default_factory=dict)
    exposure: Exposure | None = None
    panel_hash: str = ""
    device: str = ""
    precision: str = ""
    image_publishers: tuple[str, ...] | None = None
    scene_distance: float = float("nan")

    def __repr__(self) -> str:
        seen = ", ".join(repr(o) for o in self.objects) or "no object"
        unstable = f", {len(self.unstable)} unstable" if self.unstable else ""
        return f"<scene {self.status.name}, {self.image_size[0]}x{self.image_size[1]} px: {seen}{unstable}>"

    @property
    def device_kind(self) -> str:
        """The ``device`` without its number, name and engine: "cpu" or "cuda"."""
        return self.device.partition(",")[0].partition(":")[0]

    def to_bytes(self) -> bytes:
        """The basis of :attr:`digest`: all but timings, saliency map, image publishers, device and its precision.

        The hash of the settings tells what of device and precision changes a result.

        Equal bytes mean equal assessments: used to prove that a replay equals the live run. Without a panel they are those
        of the time before there was one, so that recordings of that time keep their decisions.
        """
        panel = () if self.panel_hash else ("panel_hash", "monitors")
        left_out = ("timings", "saliency", "device", "precision", "image_publishers", *panel)
        return json.dumps(to_plain(self, left_out), sort_keys=True).encode()

    @cached_property
    def digest(self) -> str:
        """BLAKE2b digest of :meth:`to_bytes`, 32 hex digits."""
        return hashlib.blake2b(self.to_bytes(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Reason:
    """Why something was decided, refused or reported, as data; :mod:`sticker_uq.messages` has the words.

    ``code``: which message, snake_case; ``subject``: the metric, monitor, signal, class or phase that it is about; ``value`` and
    ``limit``: what was measured and what it was held against, unit of the metric, NaN where there is none; ``values``: whatever
    else the message names, as pairs of a name and a string or number. The value ``detail`` is a text from outside (a driver, a
    library, a person), quoted as it is. ``box``: the place (x1, y1, x2, y2) in px; None where that is the object in question or
    the whole scene.
    """

    code: str
    subject: str = ""
    value: float = math.nan
    limit: float = math.nan
    values: tuple[tuple[str, str | float], ...] = ()
    box: tuple[float, float, float, float] | None = None

    @classmethod
    def of(cls, code: str, subject: str = "", **values: str | float) -> Reason:
        """A reason ``code`` with named ``values``; numbers become floats, as in ROS. An empty ``detail`` is left out."""
        kept = {name: value for name, value in values.items() if (name, value) != ("detail", "")}
        pairs = ((name, value if isinstance(value, str) else float(value)) for name, value in kept.items())
        return cls(code, subject, values=tuple(pairs))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the code, and of the rest what there is."""
        numbers = {k: v for k in ("value", "limit") if not math.isnan(v := getattr(self, k))}
        rest = {"subject": self.subject, **numbers, "values": dict(self.values)}
        plain = {"code": self.code, **{name: item for name, item in rest.items() if item not in ("", {})}}
        return plain if self.box is None else plain | {"box": list(self.box)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Reason:
        """A reason from what :meth:`to_dict` made. Raises KeyError without a code."""
        box = plain.get("box")
        return cls(
            plain["code"],
            plain.get("subject", ""),
            float(plain["value"]) if "value" in plain else math.nan,
            float(plain["limit"]) if "limit" in plain else math.nan,
            tuple(plain.get("values", {}).items()),
            None if box is None else (box[0], box[1], box[2], box[3]),
        )


def inner_regions(boxes: FloatArray, margin: float) -> FloatArray:
    """``boxes`` (..., 4) px less the share ``margin`` of its width or height at each side."""
    sides = margin * (boxes[..., 2:] - boxes[..., :2])
    return np.concatenate([boxes[..., :2] + sides, boxes[..., 2:] - sides], axis=-1)


@dataclass(frozen=True)
class ObjectVerdict:
    """What was decided about one object, and why. ``by_operator``: a person's answer decided; ``margin``: share of each side of
    its box by which the blade stays inside of it.
    """

    object: ObservedObject
    verdict: Verdict
    reasons: tuple[Reason, ...]
    by_operator: bool = False
    margin: float = 0.0

    @property
    def region(self) -> FloatArray:
        """Where the blade may be when it is removed: its box less ``margin`` at each side, (4,) px."""
        return inner_regions(np.asarray(self.object.box, float), self.margin)

    @property
    def objectors(self) -> tuple[str, ...]:
        """Names of the monitors that objected to removing it."""
        return tuple(reason.subject for reason in self.reasons if reason.code == "monitor_objects")


@dataclass(frozen=True)
class SceneDecision:
    """What was decided about one scene. ``decision_id`` follows from assessment, policy, answers and workpiece."""

    decision_id: str
    stamp_ns: int
    frame_id: str
    outcome: Outcome
    verdicts: tuple[ObjectVerdict, ...]
    reasons: tuple[Reason, ...]
    model_hash: str
    policy_hash: str
    workpiece_id: str = ""

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{v.verdict.name} {v.object!r}" for v in self.verdicts) or "no object"
        return f"<{self.outcome.name}: {verdicts}>"

    def removable(self) -> tuple[ObjectVerdict, ...]:
        """The verdicts that allow a removal, in the order of the objects."""
        return tuple(v for v in self.verdicts if v.verdict is Verdict.REMOVE)
