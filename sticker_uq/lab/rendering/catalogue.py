# SPDX-License-Identifier: Apache-2.0
"""The kinds of sticker: combinations of outlines, proportions, prints and colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sticker_uq.lab.rendering.brands import BRANDS
from sticker_uq.lab.rendering.figures import FIGURES
from sticker_uq.lab.rendering.scene_spec import Colour


@dataclass(frozen=True)
class StickerKind:
    """A family of stickers; `aspects` bounds width over height, `weights`: how often on a lid, on a deck."""

    print: str
    shapes: tuple[str, ...]
    motifs: tuple[str, ...]
    aspects: tuple[float, float]
    weights: tuple[float, float]
    border: tuple[float, float] = (0.0, 0.06)


_WORDS_WIDE = (
    "NEON OWLS",
    "LOUD FOXES",
    "SKATE OR NAP",
    "MOON/PIRATES",
    "TINY ROBOTS",
    "GO SLOW",
    "BEEP BOOP",
    "RAW TOAST",
    "I BRAKE/FOR BUGS",
    "STAY WEIRD",
    "DEEP SEA/RADIO",
    "NORTH PIER",
    "404 SLEEP/NOT FOUND",
    "VELVET STORM",
)
_WORDS_ROUND = (
    "WILD/CAMP",
    "SUPER/COFFEE/CLUB",
    "OPEN/DATA",
    "BIKE/CREW",
    "JAZZ/CATS",
    "RUN/2031",
    "YES",
    "WOW!",
    "100%",
)

STICKER_KINDS: tuple[StickerKind, ...] = (
    StickerKind("figure", ("diecut",), tuple(FIGURES), (1.0, 1.0), (5.0, 2.6)),
    StickerKind(
        "figure", ("circle", "rounded", "hexagon"), tuple(FIGURES), (1.0, 1.0), (3.0, 1.5), (0.0, 0.07)
    ),
    StickerKind("words", ("rect", "rounded", "oval"), _WORDS_WIDE, (1.7, 2.8), (3.0, 1.4)),
    StickerKind("words", ("circle", "burst", "hexagon"), _WORDS_ROUND, (1.0, 1.0), (2.0, 1.0)),
    StickerKind(
        "label",
        ("rect", "rounded"),
        ("PROPERTY OF LAB 4", "ASSET TAG", "ASSET 0X", "INVENTORY", "IT DEPT"),
        (1.7, 2.3),
        (1.6, 1.6),
        (0.0, 0.02),
    ),
    StickerKind(
        "shipping",
        ("rect",),
        ("FRAGILE", "RETURNS", "SERVICE", "TESTED OK"),
        (1.2, 1.6),
        (1.0, 0.6),
        (0.0, 0.0),
    ),
    StickerKind(
        "hello", ("rounded",), ("Ada", "Max", "Kim", "Robin", "Sam"), (1.3, 1.5), (0.8, 0.3), (0.0, 0.03)
    ),
    StickerKind("qr", ("rect", "rounded"), ("SCAN ME",), (0.82, 1.0), (1.0, 0.8), (0.0, 0.0)),
    StickerKind(
        "flag", ("rect", "rounded"), ("bands", "columns", "cross", "stripes"), (1.45, 1.6), (1.2, 0.7)
    ),
    StickerKind(
        "pattern",
        ("circle", "hexagon", "shield", "rounded"),
        ("sunset", "mountains", "rings", "stripes"),
        (1.0, 1.0),
        (2.2, 1.0),
        (0.03, 0.08),
    ),
    StickerKind(
        "pattern",
        ("star", "heart", "rounded"),
        ("dots", "stripes", "checker"),
        (1.0, 1.0),
        (1.4, 0.6),
        (0.04, 0.1),
    ),
    StickerKind("warning", ("triangle",), ("bolt", "mark"), (1.12, 1.16), (0.7, 0.4), (0.0, 0.0)),
    StickerKind(
        "warning", ("rect",), ("CAUTION", "WARNING", "DO NOT FEED", "HIGH VOLTAGE"), (2.2, 2.8), (0.7, 0.3)
    ),
    StickerKind(
        "decal",
        ("circle", "rounded"),
        tuple(str(index) for index in range(len(BRANDS))),
        (1.0, 1.0),
        (0.35, 0.2),
        (0.0, 0.06),
    ),
)

BADGES = StickerKind(
    "badge",
    ("rect", "rounded"),
    ("corix/i5", "corix/i7", "corix/i9", "RYVEN/7", "RYVEN/5", "NVEX/RTR", "quantel/X2", "ENERGIX/A+"),
    (0.78, 1.3),
    (0.0, 1.0),
    (0.0, 0.035),
)

BADGE_COLOURS: tuple[tuple[Colour, Colour, Colour], ...] = (
    ((110, 50, 10), (210, 140, 40), (255, 255, 255)),
    ((38, 34, 34), (60, 60, 64), (255, 255, 255)),
    ((40, 60, 230), (60, 120, 245), (255, 255, 255)),
    ((30, 90, 40), (60, 180, 110), (255, 255, 255)),
    ((196, 198, 200), (232, 232, 232), (60, 60, 60)),
    ((90, 30, 90), (190, 90, 170), (255, 255, 255)),
)

_VIVID: tuple[Colour, ...] = (
    (60, 60, 225),
    (40, 130, 245),
    (60, 205, 250),
    (90, 175, 70),
    (170, 160, 40),
    (205, 120, 40),
    (160, 70, 130),
    (150, 110, 240),
    (60, 30, 20),
    (235, 236, 238),
    (120, 70, 30),
    (80, 90, 160),
    (200, 205, 140),
    (40, 36, 36),
)


def pick_colours(rng: np.random.Generator) -> tuple[Colour, Colour, Colour]:
    first, second, third = rng.choice(len(_VIVID), 3, replace=False)
    return _VIVID[int(first)], _VIVID[int(second)], _VIVID[int(third)]
