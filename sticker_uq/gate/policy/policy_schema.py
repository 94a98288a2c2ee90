# SPDX-License-Identifier: Apache-2.0
"""The optional sections of a policy file: what `sticker-uq calibrate` learns from labelled images, proves and notes down."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, field_validator, model_validator

from sticker_uq.gate.policy.signals import SIGNALS, LeftSignal, SaliencyName, SignalName, Signals
from sticker_uq.io.setting_fields import Finite, Share
from sticker_uq.scene import CLASS_COUNT, MONITOR_SIGNAL, FloatArray, ObjectClass, Reason, SceneAssessment

_NS = 1_000_000_000
_DAY_S = 86_400

_PARTS = ("device", "weights", "settings", "panel", "camera", "image_size")
POLICY_REFUSALS = frozenset({"policy_expired", *(f"policy_other_{part}" for part in _PARTS)})
"""Codes of the reason of a scene that its policy was not made for."""


class Section(Finite):
    """A section of the policy file. Unknown names and numbers that are not finite are refused."""

    model_config = ConfigDict(protected_namespaces=())


class Isotonic(Section):
    """A non-decreasing map: lines between the points (x, y), level outside."""

    kind: Literal["isotonic"] = Field("isotonic", description="This kind of map")
    x: tuple[Share, ...] = Field(min_length=1, description="Probabilities of the detector, ascending")
    y: tuple[Share, ...] = Field(min_length=1, description="Shares that were right, non-decreasing")

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        _check_steps("x", self.x, "y", self.y)
        return self

    def __call__(self, probability: float) -> float:
        """The calibrated probability."""
        return float(np.interp(probability, self.x, self.y))


class Temperature(Section):
    """Temperature scaling: log odds of one class against the rest divided by ``temperature`` (Guo et al. 2017)."""

    kind: Literal["temperature"] = Field("temperature", description="This kind of map")
    temperature: float = Field(gt=0.0, le=100.0, description="Above 1 the detector was too sure")

    def __call__(self, probability: float) -> float:
        """The calibrated probability."""
        if not 0.0 < probability < 1.0:
            return probability
        odds = math.log(probability / (1.0 - probability)) / self.temperature
        return _sigmoid(odds)


Map = Annotated[Isotonic | Temperature, Field(discriminator="kind")]


class Calibration(Section):
    """Maps from the mean probability of a class to the share of such objects that are of it."""

    logo: Map
    sticker: Map

    def __call__(self, probabilities: FloatArray) -> FloatArray:
        """Calibrated class probabilities (3,) float64 that sum to 1; NaN where ``probabilities`` (3,) are not finite."""
        if not np.isfinite(probabilities).all():
            return np.full(CLASS_COUNT, np.nan)
        logo = self.logo(float(probabilities[ObjectClass.LOGO]))
        sticker = self.sticker(float(probabilities[ObjectClass.STICKER]))
        foreground = logo + sticker
        if foreground > 1.0:
            logo, sticker = logo / foreground, sticker / foreground
        return np.array([max(0.0, 1.0 - logo - sticker), logo, sticker])


class Term(Section):
    """What one signal adds to log odds: lines between knots, level outside them."""

    knots: tuple[float, ...] = Field(min_length=1, description="Values of the signal, ascending")
    log_odds: tuple[float, ...] = Field(min_length=1, description="What each adds, non-decreasing")

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        _check_steps("knots", self.knots, "log_odds", self.log_odds)
        return self

    def __call__(self, value: float) -> float:
        """What ``value`` of the signal adds."""
        return float(np.interp(value, self.knots, self.log_odds))


class RiskTerm(Term):
    """What one signal adds to the log odds of a wrongful removal: lines between knots, level outside them."""

    signal: SignalName
    """Which signal, monitor.NAME for one of the panel; each grows with doubt"""

    @field_validator("signal")
    @classmethod
    def _check_signal(cls, name: str) -> str:
        if name not in SIGNALS and not (name.startswith(MONITOR_SIGNAL) and name != MONITOR_SIGNAL):
            raise ValueError(f"expected one of {', '.join(SIGNALS)} or {MONITOR_SIGNAL}NAME")
        return name


class LeftTerm(Term):
    """What one signal adds to the log odds that a sticker is left: lines between knots, level outside them."""

    signal: LeftSignal
    """Which signal; each grows with doubt"""


class LeftScore(Section):
    """How probably a laptop still carries a sticker where nothing is to be removed or asked about, from its signals."""

    intercept: float = Field(ge=-100.0, le=100.0, description="Log odds where no term adds anything")
    terms: tuple[LeftTerm, ...] = Field(description="What each signal adds")

    def __call__(self, signals: Mapping[LeftSignal, float]) -> float:
        """The probability that a sticker is left on a scene with ``signals``; NaN if one that it needs was not measured."""
        return _combine(self.intercept, [(term, signals.get(term.signal, math.nan)) for term in self.terms])


class RiskScore(Section):
    """How probably removing an object would be wrong, from its signals; it grows with each of them."""

    intercept: float = Field(ge=-100.0, le=100.0, description="Log odds where no term adds anything")
    terms: tuple[RiskTerm, ...] = Field(description="What each signal adds")
    max_removal: Share = Field(description="Highest risk of a sticker that is removed")

    def __call__(self, signals: Signals) -> float:
        """The risk of removing an object with ``signals``, 0..1; NaN if one that it needs was not measured."""
        return _combine(self.intercept, [(term, signals.get(term.signal, math.nan)) for term in self.terms])


def _combine(intercept: float, terms: Sequence[tuple[Term, float]]) -> float:
    if not all(math.isfinite(value) for _, value in terms):
        return math.nan
    return _sigmoid(intercept + sum(term(value) for term, value in terms))


class PanelRule(Section):
    """How the panel of monitors is heard: the most restrictive wins, or the calibrated combination."""

    combination: Literal["any", "risk"] = "any"
    """any: one objection is enough to ask a person; risk: the scores are signals of the risk score alone"""


class SaliencyLimit(Section):
    """Limits of the saliency that no box explains; they replace max_dil and max_dil_clean."""

    signal: SaliencyName = Field("dil", description="What is limited")
    max_removal: float | None = Field(None, ge=0.0, description="Nothing is removed above; empty: no limit")
    max_clean: float | None = Field(None, ge=0.0, description="Not clean above; empty: no limit")
    percentile: float | None = Field(None, ge=0.0, le=100.0)
    """Percentile of the clean scenes that max_clean lies at"""


class Proof(Section):
    """What was shown about one risk on images that took no part in fitting.

    ``level``: the promised highest rate of bad images, which alone is proved; ``events`` bad ones among ``images`` at the chosen
    limit; ``bound``: the Clopper-Pearson bound at ``confidence`` there, for information, because a limit that was chosen by these
    images makes it optimistic; ``smallest_level``: the lowest level that this many images could prove, had none been
    bad; ``expected_limit``: the limit that conformal risk control allows for the rate on average.
    """

    level: Share
    confidence: Share
    method: str
    images: int = Field(ge=1)
    events: int = Field(ge=0)
    bound: Share
    smallest_level: Share
    limit: float
    expected_limit: float | None = None
    parts: dict[str, tuple[int, int]] | None = None
    """Bad ones and images of each part for which the level is proved, where it is proved for parts"""


class Guarantee(Section):
    """The promises of a policy; see :class:`Proof`. One of before has ``missed_sticker`` in place of ``sticker_left``."""

    match_iou: Share = Field(description="Overlap from which an object counts as a labelled one")
    wrongful_removal: Proof | None = None
    """Of all images: one in which something but a sticker may be removed"""
    sticker_left: Proof | None = None
    """Of the laptops that had a sticker and are finished without a person: one with a sticker on it"""
    missed_sticker: Proof | None = None
    """Of the images called clean at first sight: one that shows a sticker"""

    def __str__(self) -> str:
        """Both promises in one line; empty when there are none."""
        proofs = (
            ("wrongful removal", self.wrongful_removal),
            ("sticker left", self.sticker_left),
            ("missed sticker", self.missed_sticker),  # as bundles of before have it
        )
        return ", ".join(
            f"{words} <= {proof.level:.3g} at {proof.confidence:.3g} (n = {proof.images})"
            for words, proof in proofs
            if proof is not None
        )


class Validity(Section):
    """What a policy was made for; everything that is given must agree, or the policy is refused."""

    model: str = Field("", description="Name of the detector, for people")
    model_hash: str = Field("", description="SHA-256 of the weights")
    settings_hash: str = ""
    """SHA-256 of the settings of perception and of the kind of device"""
    device: str = ""
    """Kind of the device that computed, cpu or cuda, which round differently"""
    precision: str = Field("", description="Numbers of the network: float32, tf32, bfloat16 or float16")
    panel_hash: str | None = None
    """The panel of monitors, as the scenes name it; none: any, for objections only make it stricter"""
    camera: str = Field("", description="Frame of the camera")
    image_size: tuple[int, int] | None = Field(None, description="Width and height of the images, px")
    until: dt.date | None = Field(None, description="Last day, UTC")

    def expiry_reason(self, now_ns: int) -> Reason | None:
        """Why the policy does not hold at the time ``now_ns`` since 1970; None when it does."""
        if self.until is None:
            return None
        last = dt.datetime.combine(self.until, dt.time.min, dt.UTC)
        over = now_ns >= (int(last.timestamp()) + _DAY_S) * _NS
        return Reason.of("policy_expired", day=self.until.isoformat()) if over else None

    def refusal(self, assessment: SceneAssessment) -> Reason | None:
        """Why the policy does not hold for ``assessment``, one of :data:`POLICY_REFUSALS`; None when it does."""
        # before the hash of the settings, of which they are a part: they say what is different
        own, other = (self.device, self.precision), (assessment.device_kind, assessment.precision)
        if any(wanted and found and wanted != found for wanted, found in zip(own, other, strict=True)):
            return _other("policy_other_device", _join_words(own), _join_words(other))
        if self.model_hash and assessment.model_hash != self.model_hash:
            return _other("policy_other_weights", self.model_hash[:12], assessment.model_hash[:12])
        if self.settings_hash and assessment.settings_hash != self.settings_hash:
            return _other("policy_other_settings", self.settings_hash[:12], assessment.settings_hash[:12])
        if self.panel_hash is not None and assessment.panel_hash != self.panel_hash:
            hashes = (h[:12] or "none" for h in (self.panel_hash, assessment.panel_hash))
            return _other("policy_other_panel", *hashes)
        if self.camera and assessment.frame_id != self.camera:
            return _other("policy_other_camera", repr(self.camera), repr(assessment.frame_id))
        if self.image_size is not None and assessment.image_size != self.image_size:
            sizes = (f"{width} x {height}" for width, height in (self.image_size, assessment.image_size))
            return _other("policy_other_image_size", *sizes)
        return self.expiry_reason(assessment.stamp_ns)


class DataSet(Section):
    """Labelled images that a policy was made from. ``fingerprint``: SHA-256 over the images and their labels."""

    role: Literal["fit", "certificate"]
    source: str
    images: int = Field(ge=1)
    fingerprint: str


class Provenance(Section):
    command: str
    created: dt.date
    data: tuple[DataSet, ...]
    versions: dict[str, str]


def _other(code: str, expected: str, found: str) -> Reason:
    return Reason.of(code, expected=expected, found=found)


def _join_words(words: tuple[str, ...]) -> str:
    return ", ".join(filter(None, words))


def _check_steps(x_name: str, x: tuple[float, ...], y_name: str, y: tuple[float, ...]) -> None:
    if len(x) != len(y):
        raise ValueError(f"{x_name} has {len(x)} values and {y_name} {len(y)}, expected as many")
    if any(b <= a for a, b in pairwise(x)):
        raise ValueError(f"{x_name} must ascend")
    if any(b < a for a, b in pairwise(y)):
        raise ValueError(f"{y_name} must not decrease")


def _sigmoid(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1.0 + math.exp(odds))
