# SPDX-License-Identifier: Apache-2.0
"""Layout of a laptop in laptop units, shared by sampling and painting."""

from __future__ import annotations

from dataclasses import dataclass

from sticker_uq.lab.rendering.scene_spec import LaptopSpec

Rect = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class DeckLayout:
    """The parts of a rendered open laptop seen from above."""

    screen: Rect
    """The tilted screen's lower edge and bezel, foreshortened."""
    hinge: Rect
    keyboard: Rect
    touchpad: Rect
    palm_left: Rect
    palm_right: Rect


def deck_layout(laptop: LaptopSpec) -> DeckLayout:
    """The parts of the rendered `laptop` when it is open."""
    if laptop.view == "flat":
        return _flat_layout(laptop)
    depth = laptop.depth
    keys_top, keys_bottom = 0.225 * depth, 0.6 * depth
    side = 45.0 if laptop.numpad else 85.0
    middle = 440.0 if laptop.numpad else 500.0
    pad_top, pad_bottom = 0.64 * depth, 0.95 * depth
    half = 155.0
    return DeckLayout(
        screen=(0.0, 0.0, 1000.0, 0.13 * depth),
        hinge=(60.0, 0.13 * depth, 940.0, 0.165 * depth),
        keyboard=(side, keys_top, 1000.0 - side, keys_bottom),
        touchpad=(middle - half, pad_top, middle + half, pad_bottom),
        palm_left=(25.0, keys_bottom + 20.0, middle - half - 20.0, depth - 25.0),
        palm_right=(middle + half + 20.0, keys_bottom + 20.0, 975.0, depth - 25.0),
    )


def _flat_layout(laptop: LaptopSpec) -> DeckLayout:
    """The screen in the upper half, the keyboard in the lower one."""
    half = laptop.depth / 2
    side = 45.0 if laptop.numpad else 85.0
    middle = 440.0 if laptop.numpad else 500.0
    keys_top, keys_bottom = half * 1.13, half * 1.58
    return DeckLayout(
        screen=(0.0, 0.0, 1000.0, half - 14),
        hinge=(60.0, half - 14, 940.0, half + 14),
        keyboard=(side, keys_top, 1000.0 - side, keys_bottom),
        touchpad=(middle - 150.0, half * 1.64, middle + 150.0, half * 1.95),
        palm_left=(20.0, keys_bottom + 15.0, middle - 165.0, laptop.depth - 20.0),
        palm_right=(middle + 165.0, keys_bottom + 15.0, 980.0, laptop.depth - 20.0),
    )
