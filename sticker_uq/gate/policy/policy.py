# SPDX-License-Identifier: Apache-2.0
"""The policy: the limits under which an object may be removed without asking, as one validated file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from sticker_uq.gate.policy.familiarity import Familiarity
from sticker_uq.gate.policy.limits import Before, Limit
from sticker_uq.gate.policy.policy_schema import (
    Calibration,
    Guarantee,
    LeftScore,
    PanelRule,
    Provenance,
    RiskScore,
    SaliencyLimit,
    Validity,
)
from sticker_uq.gate.policy.reference import Reference, read_reference
from sticker_uq.gate.policy.signals import (
    DIL,
    DISTANCE,
    MISSED,
    NOVELTY,
    OBJECT_NOVELTY,
    OBSTRUCTION,
    UNEXPLAINED,
    LeftSignal,
    left_signals,
)
from sticker_uq.io.reading import read_yaml, show_value
from sticker_uq.io.setting_fields import Finite, Share, words
from sticker_uq.scene import (
    METRICS,
    FloatArray,
    InvalidInput,
    ObjectClass,
    ObservedObject,
    Reason,
    SceneAssessment,
)

NO_LIMIT = 100.0
"""A highest TV or PS over area that limits nothing, not even that it was measured."""
LOWEST_PROBABILITY = 0.34
"""Below it a class is not the likeliest of three, so that it limits nothing."""


def _metric(name: str) -> Limit:
    return Limit(name, Before.REMOVAL, NO_LIMIT, stood_in_for=True)


_LATER = ("max_obstruction", "blade_margin")
"""Fields that policies of before do not have."""


class Policy(Finite):
    """A policy: limits within which a removal needs no question. Every limit still passes itself; NaN never passes.

    Probabilities are means over all passes, where a pass that did not see the object says background. Entropies are in bits, TV
    and PS are divided by the area of the mean box so that cameras and distances compare. The
    sections at the end are optional; `sticker-uq calibrate` writes them. Of a policy with ``calibration`` all limits on
    probabilities mean calibrated ones, except for objects seen in too few passes to cluster.
    """

    min_probability: float = Field(0.8, ge=LOWEST_PROBABILITY, le=1.0)
    """Lowest mean probability of sticker at which a sticker is removed"""
    min_detection_rate: Share = 0.0
    """Lowest share of the passes that must see a sticker (K of T) to remove it; 0 switches the limit off"""
    max_variation_ratio: Annotated[Share, _metric("variation_ratio")] = 0.2
    """Highest variation ratio (VR, 0..2/3) of a sticker that is removed"""
    max_shannon_entropy: Annotated[float, _metric("shannon_entropy")] = Field(0.9, ge=0.0, le=1.6)
    """Highest Shannon entropy (SE, bits) of a sticker that is removed"""
    max_mutual_information: Annotated[float, _metric("mutual_information")] = Field(0.3, ge=0.0, le=1.6)
    """Highest mutual information (MI, bits) of a sticker that is removed"""
    max_relative_total_variance: Annotated[float, _metric("relative_total_variance")] = Field(
        NO_LIMIT, ge=0.0, le=NO_LIMIT
    )
    """Highest total variance over box area (TV/area) of a sticker that is removed; 100 switches the limit off"""
    max_relative_predictive_surface: Annotated[float, _metric("relative_predictive_surface")] = Field(
        NO_LIMIT, ge=0.0, le=NO_LIMIT
    )
    """Highest predictive surface over box area (PS/area) of a sticker that is removed; 100 switches the limit off"""
    max_logo_overlap: Share = 0.1
    """Highest share of the smaller box that a sticker and a possible logo may share"""
    ask_duplicated: bool = False
    """Whether a sticker that one pass saw twice is asked about: it may be two things"""
    min_logo_probability: float = Field(0.7, ge=0.34, le=1.0)
    """Mean probability of logo from which a logo is kept without asking"""
    notable_probability: Share = 0.2
    """Mean probability from which an object counts as a possible sticker or logo"""
    close_up_weight: Share = 0.0
    """Weight of the close-up, beside the passes, in the probability that something may be a sticker; 0: close-ups do not
    count, and what the passes call a sticker is never left alone"""
    max_dil: Annotated[Share, Limit(DIL, Before.START, stood_in_for=True)] = 0.6
    """Highest DiL of a scene in which anything is removed; 1 switches the limit off"""
    max_dil_clean: Annotated[Share, Limit(DIL, Before.CLEAN, stood_in_for=True)] = 0.5
    """Highest DiL of a scene that counts as clean; 1 switches the limit off"""
    max_unexplained_objectness: Annotated[
        Share, Limit(UNEXPLAINED, Before.REST, stood_in_for=True, place="missed_place")
    ] = 1.0
    """Highest objectness that no box explains in a scene that counts as clean; 1 switches the limit off"""
    max_novelty: Annotated[Share, Limit(NOVELTY, Before.REST, network=True, place="novel_place")] = 1.0
    """Highest novelty of a scene that counts as clean; 1 switches the limit off"""
    max_missed_sticker_probability: Annotated[
        Share, Limit(MISSED, Before.REST, network=True, place="missed_place")
    ] = 1.0
    """Highest probability of a sticker that no box shows in a scene called clean; 1 switches the limit off"""
    max_obstruction: Annotated[Share, Limit(OBSTRUCTION, Before.QUESTION)] = 1.0
    """Highest probability that a hand or a gripper is in front of a laptop that is asked about or called clean; 1 switches the
    limit off"""
    max_background_saliency: float = Field(0.0, ge=0.0, le=1e6)
    """Mean saliency per pixel outside the boxes up to which a scene is clean whatever its DiL; 0: never"""
    max_left_probability: Share = 1.0
    """Highest probability that a sticker is left in a scene that counts as clean: by the section ``left``, without it that of
    anything that is left alone"""
    blade_margin: float = Field(0.0, ge=0.0, le=0.3)
    """Share of each side of an object's box by which the blade stays inside of it, in the region that the arm is given"""
    clean_without_operator: bool = True
    """Whether a laptop may be called clean without the operator; `calibrate` without --beta says no"""
    max_scene_distance: Annotated[float, Limit(DISTANCE, Before.START, math.inf, network=True)] = Field(
        1.0, gt=0.0, le=1e6
    )
    """Highest distance of a scene from the training pictures, 1: the limit of the novelty network itself; above it nothing is
    removed or called clean"""
    max_object_novelty: Annotated[
        Share, Limit(OBJECT_NOVELTY, Before.REMOVAL, measured_as="novelty", network=True)
    ] = 0.7
    """Highest novelty of a sticker that is removed; 1: no limit"""
    unmeasured_novelty: Literal["ask", "release"] = "ask"
    """Without a novelty network: ask, nothing is released without the operator; release, the two limits above do not count and a
    scene that the detector was not made for is peeled"""
    calibration: Calibration | None = None
    """From class probabilities to shares that are right"""
    risk: RiskScore | None = None
    """Risk of a wrongful removal from its signals, and its limit"""
    left: LeftScore | None = None
    """Probability that a sticker is left where nothing is to be removed or asked about, from its signals"""
    panel: PanelRule | None = None
    """How a panel of monitors is heard; none: one objection is enough to ask a person"""
    saliency: SaliencyLimit | None = Field(None, description="Replaces max_dil and max_dil_clean")
    familiarity: Familiarity | None = None
    """What scenes look like that are judged without a person; none: all are"""
    guarantee: Guarantee | None = Field(None, description="What was proved, with which images")
    validity: Validity | None = Field(None, description="What the policy was made for; refused elsewhere")
    provenance: Provenance | None = Field(None, description="Command, data and versions that made it")
    reference: Reference | None = None
    """What the scenes looked like that it was made from: `file`, which lies beside the policy, and its `sha256`; none: nothing is
    watched"""

    @model_validator(mode="after")
    def _clean_is_stricter(self) -> Self:
        if self.max_dil_clean > self.max_dil:
            raise ValueError(
                f"max_dil_clean = {self.max_dil_clean} must not be above max_dil = {self.max_dil}"
            )
        return self

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of all limits and sections, hex.

        A field that came later is left out where it has its default, so that files and bundles of before keep their hash.
        """
        unused = {name for name in _LATER if getattr(self, name) == type(self).model_fields[name].default}
        values = self.model_dump(mode="json", exclude_none=True, exclude=unused)
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def model_copy(self, **options: Any) -> Self:
        """Pydantic's copy, whose hash is its own."""
        copied = super().model_copy(**options)
        vars(copied).pop("hash", None)
        return copied

    def probabilities(self, observed: ObservedObject) -> FloatArray:
        """Class probabilities (3,) of ``observed`` over all passes, calibrated where the policy has maps for it."""
        vector = observed.over_all_passes
        return vector if self.calibration is None or observed.unstable else self.calibration(vector)

    def sticker_probability(self, observed: ObservedObject) -> float:
        """How probably ``observed`` may be a sticker: over all passes, and by its close-up where it has one."""
        probability = float(self.probabilities(observed)[ObjectClass.STICKER])
        further = 0.0 if math.isnan(observed.close_up) else observed.close_up - probability
        return probability + self.close_up_weight * further

    def left_probability(self, left: Sequence[ObservedObject], assessment: SceneAssessment) -> float:
        """How probably a sticker is left on the laptop of ``assessment`` where the objects ``left`` stay; NaN if not measured."""
        signals = self.left_signals(left, assessment)
        return signals["sticker_probability"] if self.left is None else self.left(signals)

    def left_signals(
        self, left: Sequence[ObservedObject], assessment: SceneAssessment
    ) -> dict[LeftSignal, float]:
        """What tells that a sticker is left on the laptop of ``assessment`` where the objects ``left`` stay."""
        return left_signals(left, [self.sticker_probability(one) for one in left], assessment)

    def limits_before(self, what: Before) -> Iterator[tuple[Limit, float]]:
        """The limits that hold before ``what`` and are on, with their values; the section ``saliency`` takes the place of DiL."""
        for name, limit in LIMITS.items():
            if limit.before is not what:
                continue
            if limit.signal == DIL and (own := self.saliency) is not None:
                highest = own.max_clean if what is Before.CLEAN else own.max_removal
                if highest is not None:
                    yield Limit(own.signal, what, math.inf), highest
            elif (highest := getattr(self, name)) < limit.off:
                yield limit, highest

    def releases_unmeasured(self, limit: Limit, value: float) -> bool:
        """Whether ``value`` of ``limit`` is none, and this policy goes on without."""
        return limit.is_released_unmeasured and self.unmeasured_novelty == "release" and math.isnan(value)

    def refusal(self, assessment: SceneAssessment) -> Reason | None:
        """Why this policy must not judge ``assessment``; None when it may."""
        return None if self.validity is None else self.validity.refusal(assessment)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """The policy in a YAML file of ``name: value`` lines and sections; what it leaves out has its default.

        Raises :class:`InvalidInput` naming the file and every unknown name and bad value, and for a reference in a file beside it
        that is missing or another one.
        """
        values = read_yaml(path, f"policy {path}")
        if not isinstance(values, dict):
            raise InvalidInput(
                f"policy {path} must hold lines of the form name: value, got {type(values).__name__}"
            )
        reference = values.get("reference")
        if isinstance(reference, dict) and "signals" not in reference:
            values["reference"] = read_reference(reference, Path(path), f"policy {path}: reference")
        try:
            # as JSON, so that lists are tuples and texts are days, but neither true nor "0.8" is a number
            return cls.model_validate_json(json.dumps(values, default=str), strict=True)
        except ValidationError as error:
            problems = "; ".join(map(_sentence, error.errors()))
            raise InvalidInput(f"policy {path}: {problems}") from None


LIMITS: dict[str, Limit] = {
    name: row for name, info in Policy.model_fields.items() for row in info.metadata if isinstance(row, Limit)
}
"""The table of the limits by their names in the file, in the order in which they are judged."""
LIMITED_METRICS = tuple(name for name in METRICS if f"max_{name}" in LIMITS)
"""The metrics that a policy has an upper limit ``max_NAME`` for."""


def highest(name: str) -> float:
    """The highest value that the field ``name`` of a policy may have."""
    return next(float(rule.le) for rule in Policy.model_fields[name].metadata if hasattr(rule, "le"))


def _sentence(problem: Any) -> str:
    name = ".".join(map(str, problem["loc"]))
    return f"{name} = {show_value(problem['input'])}: {words(problem, Policy)}" if name else words(problem)
