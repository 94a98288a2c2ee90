"""The specification that an assessment of the laptop cell starts from; a cell's own people then correct it."""

from __future__ import annotations

from typing import Any

from sticker_uq.lab.robustness.relation import Relation
from sticker_uq.lab.robustness.spec import Circumstance, Measured, Specification, SystemDescription

_GATE = Relation(points=((0.0, 0.02), (0.25, 0.05), (1.0, 0.05)))
"""Removing what is no sticker, or passing a laptop on with one, does not become acceptable because the picture is bad."""
_QUALITY = Relation(points=((0.0, 0.02), (0.1, 0.05), (0.25, 0.1), (0.6, 0.5), (1.0, 1.0)))
"""Detection may get worse as the picture does: little where a person sees no difference, much where a person sees little."""


def laptop_cell() -> Specification:
    """The laptop cell of this repository, with values that a cell with a fixed camera, a lamp and an operator gives rise to."""
    return Specification(
        system=SystemDescription(
            name="laptop cell",
            description="Sticker detection above a bench: one camera looking down, a lamp, a robot arm, an operator.",
        ),
        circumstances=tuple(_circumstance(*row) for row in _ROWS),
        distance="cw_ssim",
        relations={
            "precision": _QUALITY,
            "recall": _QUALITY,
            "ap50": _QUALITY,
            "ap": _QUALITY,
            "wrongly_removed": _GATE,
            "missed_called_clean": _GATE,
        },
        significance_tightening=0.5,
    )


def _circumstance(
    name: str,
    operator: str,
    developer: str,
    transformation: str,
    strength: tuple[float, float],
    probability: float,
    risk: tuple[int, int, int],
    more: dict[str, Any] | None = None,
) -> Circumstance:
    exposure, likelihood, severity = risk
    return Circumstance(
        name=name,
        views={"operator": operator, "developer": developer},
        transformation=transformation,
        strength=strength,
        probability=probability,
        exposure=exposure,
        likelihood=likelihood,
        severity=severity,
        **(more or {}),
    )


_LIGHT = "light"
_ROWS: tuple[tuple[Any, ...], ...] = (
    # name, as the operator says it, as the developer says it, transformation, strengths, probability, (E, L, S)
    (
        "glare",
        "The lamp or the window mirrors in the lid",
        "A reflection drives a part of the image to white",
        "glare",
        (0.5, 3),
        0.12,
        (4, 4, 3),
    ),
    (
        "motion-blur",
        "The laptop still slides, or the bench shakes",
        "The image is blurred along one direction",
        "motion_blur",
        (4, 15),
        0.06,
        (4, 2, 3),
        {"measured": Measured(quantity="motion", above=4.0)},
    ),
    (
        "defocus",
        "The lens was touched, or the laptop is thicker than usual",
        "The image is out of focus",
        "defocus",
        (4, 11),
        0.05,
        (2, 3, 3),
        {"measured": Measured(quantity="blur", above=4.5)},
    ),
    (
        "low-light",
        "The lamp has failed or is switched off",
        "The image is dark and noisy",
        "low_light",
        (2, 4),
        0.04,
        (2, 2, 3),
        {"exclusive_group": _LIGHT, "measured": Measured(quantity="exposure", below=-2.0)},
    ),
    (
        "overexposure",
        "The sun falls on the bench",
        "The image is too bright, light parts are clipped",
        "overexposure",
        (1, 2.5),
        0.05,
        (3, 3, 3),
        {"exclusive_group": _LIGHT, "measured": Measured(quantity="exposure", above=1.3)},
    ),
    (
        "colour-cast",
        "The lamp was exchanged for one of another colour",
        "The white balance is wrong",
        "colour_cast",
        (5000, 3000),
        0.08,
        (3, 3, 2),
    ),
    (
        "sensor-noise",
        "The camera is hot",
        "The image is noisy",
        "sensor_noise",
        (8, 22),
        0.05,
        (4, 2, 2),
        {"measured": Measured(quantity="noise", above=7.0)},
    ),
    (
        "salt-and-pepper",
        "The camera is old",
        "Single pixels are black or white",
        "salt_and_pepper",
        (0.3, 2),
        0.02,
        (5, 1, 2),
    ),
    (
        "jpeg",
        "Somebody else uses the network",
        "The image was compressed strongly",
        "jpeg",
        (40, 12),
        0.06,
        (4, 3, 2),
    ),
    (
        "lower-resolution",
        "A cheaper camera was built in",
        "The image has fewer pixels",
        "lower_resolution",
        (1.5, 4),
        0.03,
        (1, 2, 3),
    ),
    (
        "lens-dirt",
        "The lens is dirty",
        "Parts of the image are smeared and veiled",
        "lens_dirt",
        (3, 20),
        0.08,
        (4, 3, 3),
    ),
    (
        "occlusion",
        "The gripper or a hand is in the way",
        "A part of the laptop is covered",
        "occlusion",
        (4, 22),
        0.1,
        (5, 3, 4),
    ),
    (
        "rotation",
        "The laptop lies askew",
        "Objects are turned in the image",
        "rotation",
        (5, 25),
        0.15,
        (5, 4, 2),
    ),
    (
        "tilt",
        "The camera was knocked, or a laptop leans on something",
        "The image is distorted by perspective",
        "tilt",
        (5, 18),
        0.06,
        (3, 3, 3),
    ),
    (
        "shifted-lines",
        "The camera's cable is loose",
        "Lines of the image are shifted sideways",
        "shifted_lines",
        (3, 16),
        0.02,
        (5, 1, 3),
    ),
    (
        "unknown-make",
        "A laptop of a make that was never here",
        "Logo and case are in no data set",
        "unknown_make",
        (90, 25),
        0.1,
        (4, 4, 5),
    ),
    (
        "sticker-residue",
        "Somebody has torn a sticker off before",
        "Paper and adhesive lie where a sticker was",
        "sticker_residue",
        (0.5, 3),
        0.12,
        (5, 4, 3),
    ),
)
