# SPDX-License-Identifier: Apache-2.0
"""Uncertainty-aware sticker detection for a robot cell that refurbishes laptops.

The robot arm may peel a sticker only while the uncertainty of perception is below the limits of a policy; otherwise the operator
is asked. :mod:`sticker_uq.api` is the Python interface; docs/contributing.md lists the packages and what each may import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sticker_uq.version import __version__ as __version__

if TYPE_CHECKING:
    from sticker_uq.api import (
        AssessedImage,
        Detector,
        JudgedImage,
        draw,
        objects_table,
        packaged_limits,
        read_image,
    )
    from sticker_uq.gate import Policy, judge
    from sticker_uq.scene import (
        METRICS,
        InvalidInput,
        ObservedObject,
        Outcome,
        SceneAssessment,
        SceneDecision,
        Verdict,
    )

__all__ = [
    "METRICS",
    "AssessedImage",
    "Detector",
    "InvalidInput",
    "JudgedImage",
    "ObservedObject",
    "Outcome",
    "Policy",
    "SceneAssessment",
    "SceneDecision",
    "Verdict",
    "draw",
    "judge",
    "objects_table",
    "packaged_limits",
    "read_image",
]


def __getattr__(name: str) -> Any:
    # loaded when first used: a program that only wants the version, or the gate, loads neither OpenCV nor torch
    for home in ("scene", "gate", "api") if name in __all__ else ():
        if name in (found := vars(import_module(f"{__name__}.{home}"))):
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
