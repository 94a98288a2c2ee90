# SPDX-License-Identifier: Apache-2.0
"""The detectors of bundles as models of ``sticker-uq study``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sticker_uq.cell.bundle import Bundle
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from sticker_uq.lab.studies.detectors.study_plan import ModelChoice

_OF_ALL_MODELS = ("passes", "score_floor", "precision", "seed")
"""Parameters of a detector that all models of a study share."""
_PRECISIONS = ("float32", "bfloat16")
_FIXED = (
    "nms_threshold",
    "max_detections",
    "min_cluster_size",
    "min_samples",
    "cluster_epsilon",
    "decision_threshold",
    "dil_technique",
    "dil_alpha",
    "region_objectness",
)
"""Parameters that change what a study measures, and that have their defaults in every study."""


@dataclass(frozen=True)
class Bundled:
    """What bundles bring into a study: their ``models``, their dropout ``rates``, and the ``values`` that all models share."""

    models: tuple[ModelChoice, ...] = ()
    rates: tuple[float, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def bundled(texts: Iterable[str], given: Mapping[str, Any]) -> Bundled:
    """The bundles of ``texts``, each [LABEL=]FOLDER, as models of a study; ``given``: the values of options.

    Raises InvalidInput for a bundle that cannot be read, that has other parameters than the study can measure with, or than
    another bundle, and for an option that gives what the bundles have themselves.
    """
    found = Bundled()
    for text in texts:
        if beside := [name for name in _OF_ALL_MODELS if name in given]:
            raise InvalidInput(
                f"--bundle and --{beside[0].replace('_', '-')}: expected one of them, a bundle has its own"
            )
        found = _with(found, text)
    return found


def _with(before: Bundled, text: str) -> Bundled:
    from sticker_uq.lab.studies.detectors.study_plan import ModelChoice

    name, equals, folder = text.partition("=")
    label = name if equals else Path(text).absolute().name
    if not re.fullmatch(r"[\w.-]+", label):
        raise InvalidInput(
            f"--bundle {text!r}: expected [LABEL=]FOLDER, LABEL of letters, digits, dots, - and _"
        )
    bundle = Bundle.load(folder if equals else text)
    settings = bundle.settings()
    _check(bundle.folder, settings)
    values = {name: getattr(settings, name) for name in _OF_ALL_MODELS}
    for name, value in values.items():
        if (expected := before.values.get(name, value)) != value:
            raise InvalidInput(
                f"bundle {bundle.folder}: {name} = {value!r}: expected {expected!r} as in the bundle before it, all models of a "
                "study are measured alike; study them one after the other"
            )
    model = ModelChoice(
        label=label,
        name=settings.model,
        weights=settings.weights,
        dropout_site=settings.dropout_site,
        min_size=settings.min_size,
    )
    rates = dict.fromkeys((*before.rates, settings.dropout_rate))
    return Bundled((*before.models, model), tuple(rates), values)


def _check(folder: Path, settings: PerceptionSettings) -> None:
    plain = PerceptionSettings()
    for name in _FIXED:
        if (value := getattr(settings, name)) != (expected := getattr(plain, name)):
            raise InvalidInput(
                f"bundle {folder}: {name} = {value!r}: expected {expected!r}, with which every study measures; "
                "`sticker-uq replay --bundle` assesses labelled images with it"
            )
    if settings.precision not in _PRECISIONS:
        raise InvalidInput(
            f"bundle {folder}: precision = {settings.precision!r}: expected {' or '.join(_PRECISIONS)} for a study"
        )
