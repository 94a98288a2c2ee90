# SPDX-License-Identifier: Apache-2.0
"""The signals of uncertainty that a policy may combine or limit, by the names that its file uses.

Every signal grows with uncertainty; what was not measured is NaN.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Literal, cast, get_args

import numpy as np

from sticker_uq.gate.box_overlap import as_box, cover, covered_share
from sticker_uq.scene import MONITOR_SIGNAL, Localization, ObjectClass, ObservedObject, SceneAssessment

SIGNALS = (
    "improbability",
    "single_pass_improbability",
    "close_up_improbability",
    "photo_improbability",
    "logo_probability",
    "shannon_entropy",
    "mutual_information",
    "variation_ratio",
    "relative_total_variance",
    "relative_predictive_surface",
    "missed_passes",
    "crowding",
    "logo_overlap",
    "surer_overlap",
    "duplicated",
    "dil",
    "novelty",
)
"""What every scene says about an object."""

SignalName = str
"""What the risk score of an object may be made of: a built-in signal, or "monitor.NAME" for the score of one of the panel."""

SaliencyName = Literal["dil", "background_saliency", "unexplained_objectness"]
"""What a scene may be limited by: DiL, the saliency outside the boxes per pixel of the image, or the largest objectness that no
box explains."""

DIL: SaliencyName = "dil"
"""The subject of a reason that says that too much of the saliency lies outside the boxes."""

UNEXPLAINED: SaliencyName = "unexplained_objectness"
"""The subject of a reason that says that something may have been missed."""

NOVELTY = "novelty"
"""The subject of a reason that says that something lies there which the detector was never shown."""

DISTANCE = "scene_distance"
"""The subject of a reason that says that the scene as a whole is unlike those that the detector was made for."""

OBJECT_NOVELTY = "object_novelty"
"""The subject of a reason that says that an object is of no kind that the detector was shown."""

MISSED = "missed_sticker_probability"
"""The subject of a reason that says that a sticker may be visible which no box shows."""

OBSTRUCTION = "obstruction"
"""The subject of a reason that says that a hand or a gripper may be in front of the laptop."""

OF_ASSESSMENT = frozenset(one.name for one in fields(SceneAssessment))
"""Signals among these names are the assessment's own; the others belong to its distinctive localization."""

LeftSignal = Literal[
    "sticker_probability",
    "any_sticker",
    "in_passes",
    "single_pass",
    "missed_sticker_probability",
    "unexplained_objectness",
]
"""What tells that a sticker is left on a laptop where nothing is to be removed or asked about."""

Signals = Mapping[SignalName, float]


def object_signals(observed: ObservedObject, scene: SceneAssessment) -> dict[SignalName, float]:
    """Every uncertainty signal that a policy may use of one object of ``scene``, by its name.

    "improbability" is 1 minus the mean probability of sticker over all passes, "single_pass_improbability" that of one pass
    without dropout, "close_up_improbability" that of one over its enlarged surroundings, "photo_improbability" that by a
    network which has seen photographs, "logo_probability" the mean of logo over all passes, "missed_passes" the share of the
    passes that did not see it, "crowding" the largest share of the smaller box that it and anything else seen in the scene have
    in common, "logo_overlap" the same weighted by the probability that the other is a logo, "surer_overlap" the share of its box
    that lies in boxes more probably of a sticker or logo than itself (what lies between two things is often neither),
    "duplicated" 1 if one pass saw it twice, "novelty" how probably what lies there was never shown to the detector;
    "monitor.NAME" what the panel says.
    """
    box, vector = as_box(observed.box), observed.over_all_passes
    others = [other for other in (*scene.objects, *scene.unstable) if other is not observed]
    shared = [cover(box, as_box(other.box)) for other in others]
    logos = [float(other.probabilities[ObjectClass.LOGO]) for other in others]
    background = observed.probabilities[ObjectClass.BACKGROUND]
    surer = [as_box(o.box) for o in others if o.probabilities[ObjectClass.BACKGROUND] < background]
    return {
        "improbability": 1.0 - float(vector[ObjectClass.STICKER]),
        "single_pass_improbability": 1.0 - observed.single_pass,
        "close_up_improbability": 1.0 - observed.close_up,
        "photo_improbability": 1.0 - observed.photo,
        "logo_probability": float(vector[ObjectClass.LOGO]),
        "shannon_entropy": observed.shannon_entropy,
        "mutual_information": observed.mutual_information,
        "variation_ratio": observed.variation_ratio,
        "relative_total_variance": observed.relative_total_variance,
        "relative_predictive_surface": observed.relative_predictive_surface,
        "missed_passes": 1.0 - observed.detection_rate,
        "crowding": max(shared, default=0.0),
        "logo_overlap": max((s * p for s, p in zip(shared, logos, strict=True)), default=0.0),
        "surer_overlap": covered_share(box, surer),
        "duplicated": float(observed.duplicated),
        "dil": scene_saliency(scene),
        "novelty": observed.novelty,
        **{MONITOR_SIGNAL + one.name: one.score for one in observed.monitors},
    }


def left_signals(
    left: Sequence[ObservedObject], probabilities: Sequence[float], scene: SceneAssessment
) -> dict[LeftSignal, float]:
    """Every signal that a sticker is left on ``scene``, where the objects ``left`` stay, N in all, by its name.

    ``probabilities`` (N,): of each, how probably it may be a sticker, as the policy sees it. "sticker_probability" is the highest
    of them, "any_sticker" that of one sticker or more if they were independent, "in_passes" the highest mean probability of
    sticker over the passes that saw the object, however few, "single_pass" the highest of one pass without dropout (of objects
    that few passes saw where it was measured), "missed_sticker_probability" that of patches that no box shows,
    "unexplained_objectness" the largest that no box explains. NaN if one of the values was not measured.
    """
    single = [one.single_pass for one in left if not (one.unstable and math.isnan(one.single_pass))]
    return {
        "sticker_probability": float(np.max(probabilities, initial=0.0)),
        "any_sticker": 1.0 - float(np.prod([1.0 - one for one in probabilities])),
        "in_passes": float(np.max([one.probabilities[ObjectClass.STICKER] for one in left], initial=0.0)),
        "single_pass": float(np.max(single, initial=0.0)),
        "missed_sticker_probability": scene_signal(scene, MISSED),
        "unexplained_objectness": scene_saliency(scene, UNEXPLAINED),
    }


def scene_saliency(assessment: SceneAssessment, name: SaliencyName = "dil") -> float:
    """The saliency signal ``name``; NaN where there is no distinctive localization, or no image."""
    pixels, found = assessment.image_size[0] * assessment.image_size[1], assessment.localization
    # without any saliency BL is 0 too, but nothing was looked at
    if found is None or pixels <= 0 or not np.isfinite(found.dil):
        return float("nan")
    if name == "background_saliency":
        return found.background_localization / pixels
    return {"dil": found.dil, UNEXPLAINED: found.unexplained_objectness}[name]


def scene_signal(assessment: SceneAssessment, name: str) -> float:
    """A signal of the scene that a policy may limit, by the subject of its reasons; NaN where it was not measured."""
    if name in get_args(SaliencyName):
        return scene_saliency(assessment, cast("SaliencyName", name))
    found = holder_of(assessment, name)
    return math.nan if found is None else float(getattr(found, name))


def holder_of(assessment: SceneAssessment, name: str) -> SceneAssessment | Localization | None:
    """What of ``assessment`` has the signal ``name``; None without distinctive localization, where that has it."""
    return assessment if name in OF_ASSESSMENT else assessment.localization
