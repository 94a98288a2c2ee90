# SPDX-License-Identifier: Apache-2.0
"""The invented makes of laptop: names, emblems and finishes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sticker_uq.lab.rendering.scene_spec import Colour


@dataclass(frozen=True)
class Brand:
    """An invented make of rendered laptop: its name, the emblem family and the type of its word mark."""

    name: str
    emblem: str
    face: str
    weight: int
    accent: Colour


@dataclass(frozen=True)
class Finish:
    colour: Colour
    keys: Colour
    legends: Colour
    textures: tuple[str, ...]
    gloss: float


BRANDS: tuple[Brand, ...] = (
    Brand("HALDEN", "peaks", "sans", 800, (60, 60, 200)),
    Brand("ORBIQ", "orbit", "sans", 700, (200, 120, 30)),
    Brand("kestria", "wing", "italic", 800, (40, 140, 230)),
    Brand("lumeno", "spark", "sans", 600, (60, 190, 240)),
    Brand("TESVEL", "hexagon", "sans", 800, (120, 170, 40)),
    Brand("mirelo", "leaf", "sans", 700, (80, 170, 70)),
    Brand("ZEPHRA", "arcs", "italic", 700, (190, 130, 50)),
    Brand("Quillon", "letter", "serif", 800, (50, 50, 170)),
    Brand("ARKTO", "bars", "sans", 800, (170, 80, 30)),
    Brand("SOLVEK", "diamonds", "sans", 800, (40, 40, 210)),
    Brand("nimbu", "crescent", "sans", 800, (170, 90, 120)),
    Brand("VOLTAN", "loop", "sans", 700, (160, 60, 20)),
)

_SYLLABLES = (
    "ba",
    "cor",
    "da",
    "fen",
    "gri",
    "hu",
    "jo",
    "kal",
    "mun",
    "nor",
    "pix",
    "ruv",
    "sta",
    "tyo",
    "wex",
    "yl",
)


def brand_of(index: int) -> Brand:
    """The rendered laptop's make of an index; beyond `BRANDS` an unseen make is generated from the index."""
    if index < len(BRANDS):
        return BRANDS[index]
    rng = np.random.default_rng(index)
    name = "".join(
        _SYLLABLES[int(part)] for part in rng.integers(len(_SYLLABLES), size=int(rng.integers(2, 4)))
    )
    written = name.upper() if rng.random() < 0.5 else name
    accent = tuple(int(part) for part in rng.integers(30, 220, 3))
    return Brand(
        written,
        "unknown",
        str(rng.choice(("sans", "italic", "serif"))),
        800,
        (accent[0], accent[1], accent[2]),
    )


_DARK_KEYS: Colour = (38, 36, 35)
_LIGHT_LEGENDS: Colour = (225, 225, 225)

FINISHES: tuple[Finish, ...] = (
    Finish((203, 202, 200), _DARK_KEYS, _LIGHT_LEGENDS, ("brushed", "matte"), 0.55),
    Finish((196, 195, 192), (188, 187, 184), (70, 70, 70), ("brushed", "matte"), 0.5),
    Finish((104, 99, 96), _DARK_KEYS, _LIGHT_LEGENDS, ("brushed", "matte"), 0.5),
    Finish((44, 41, 40), (30, 28, 28), _LIGHT_LEGENDS, ("matte", "carbon", "glossy"), 0.45),
    Finish((96, 62, 38), (44, 34, 28), _LIGHT_LEGENDS, ("matte", "glossy"), 0.5),
    Finish((184, 186, 220), (230, 230, 236), (90, 90, 100), ("brushed", "matte"), 0.5),
    Finish((232, 234, 235), (240, 240, 240), (110, 110, 110), ("glossy", "matte"), 0.7),
    Finish((44, 36, 150), _DARK_KEYS, _LIGHT_LEGENDS, ("glossy", "matte"), 0.7),
    Finish((178, 200, 214), (60, 62, 64), _LIGHT_LEGENDS, ("brushed",), 0.5),
    Finish((78, 92, 62), (40, 42, 38), _LIGHT_LEGENDS, ("matte",), 0.35),
    Finish((150, 128, 84), (236, 236, 234), (90, 90, 90), ("matte", "brushed"), 0.45),
    Finish((62, 58, 58), (32, 31, 31), (90, 90, 235), ("carbon", "matte"), 0.45),
)
