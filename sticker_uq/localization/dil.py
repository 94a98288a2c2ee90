"""Distinctive localization of one image."""

from __future__ import annotations

import math

from sticker_uq.detection import Features, NonFiniteOutput, StochasticDetector
from sticker_uq.localization.saliency import objectness_saliency
from sticker_uq.localization.score import distinctive_localization, dynamic_threshold
from sticker_uq.localization.settings import LocalizationSettings
from sticker_uq.scene import Detections, Localization


def localize(
    detector: StochasticDetector,
    features: Features,
    detections: Detections,
    settings: LocalizationSettings,
    keep_saliency: bool = False,
) -> Localization:
    """How well the predicted boxes explain the objectness saliency of one image (DiL paper, eq 1-6).

    ``detections``: those of the pass without dropout; predicted boxes are the ones whose score reaches the fixed decision
    threshold. The saliency map stays in the result if ``keep_saliency``. Raises NonFiniteOutput when the saliency is NaN or
    infinite.
    """
    saliency = objectness_saliency(detector, features, settings.technique)
    predicted = detections.boxes[detections.scores >= settings.decision_threshold]
    complete, background, dil = distinctive_localization(saliency, predicted)
    if not math.isfinite(complete):
        raise NonFiniteOutput(
            f"the objectness saliency of {detector.name} sums to {complete}, expected a finite number"
        )
    return Localization(
        complete_localization=complete,
        background_localization=background,
        dil=dil,
        decision_threshold=dynamic_threshold(dil, settings.decision_threshold, settings.alpha),
        saliency=saliency if keep_saliency else None,
    )
