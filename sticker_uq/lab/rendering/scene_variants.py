# SPDX-License-Identifier: Apache-2.0
"""Scenes of kinds that are rare among the sampled ones: torn stickers, stickers on logos, prints of the lid itself.

Each is a function of a scene's description; what is labelled follows from rendering the result.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sticker_uq.lab.rendering.painting import Image
from sticker_uq.lab.rendering.render import RenderedScene, render
from sticker_uq.lab.rendering.scene_spec import LogoSpec, Point, SceneSpec, StickerSpec
from sticker_uq.scene import InvalidInput

MOST_PEELED = 0.35
"""Highest part of a sticker that can be folded over."""


def torn(scene: SceneSpec, amount: float) -> SceneSpec:
    """Rendered ``scene`` with every sticker worn and peeled by at least ``amount``, 0 (as it is) to 1 (in shreds,
    a third folded over).

    InvalidInput for an amount out of range.
    """
    _check_share("amount", amount)

    def worse(sticker: StickerSpec) -> StickerSpec:
        peel = max(sticker.peel, MOST_PEELED * amount)
        return replace(
            sticker, wear=max(sticker.wear, amount), faded=max(sticker.faded, amount / 2), peel=peel
        )

    return replace(scene, stickers=tuple(map(worse, scene.stickers)))


def sticker_on_logo(scene: SceneSpec, nearness: float) -> SceneSpec:
    """``scene`` with its first sticker over its first logo: side by side at ``nearness`` 0, middle on middle at 1.

    It approaches from the side where it lay and is drawn last. Unchanged without a sticker or a logo. InvalidInput for a
    nearness out of range.
    """
    _check_share("nearness", nearness)
    if not scene.stickers or not scene.logos:
        return scene
    sticker, logo = scene.stickers[0], scene.logos[0]
    moved = replace(sticker, centre=_beside(sticker, logo, nearness))
    return replace(scene, stickers=(*scene.stickers[1:], moved))


def _beside(sticker: StickerSpec, logo: LogoSpec, nearness: float) -> Point:
    """Where the centre of ``sticker`` lies at that nearness to ``logo``; at 0 their upright rectangles touch."""
    away = np.subtract(sticker.centre, logo.centre)
    direction = away if np.any(away) else np.array([1.0, 0.0])
    reach = np.array([sticker.width + logo.width, sticker.height + logo.height]) / 2
    touching = direction * np.min(reach / np.maximum(np.abs(direction), 1e-9))
    x, y = np.asarray(logo.centre) + (1 - nearness) * touching
    return float(x), float(y)


def with_prints(
    scene: SceneSpec, opacity: float, size: tuple[int, int] = (960, 720)
) -> tuple[RenderedScene, tuple[int, ...]]:
    """``scene`` with every second sticker as a print of the lid itself, through which the lid shows, and the ids of those.

    ``opacity`` of the ink: 0 is the bare lid, 1 looks like the sticker. A print is no sticker and is not labelled.
    InvalidInput for an opacity out of range.
    """
    _check_share("opacity", opacity)
    printed = tuple(sticker.id for sticker in scene.stickers[::2])
    bare = scene
    for identity in printed:
        bare = bare.without_sticker(identity)
    lid, covered = render(bare, size), render(scene, size)
    return replace(lid, image=_blended(lid.image, covered.image, opacity)), printed


def _blended(lid: Image, covered: Image, opacity: float) -> Image:
    mixed = lid + np.float32(opacity) * (covered.astype(np.float32) - lid)
    return np.rint(mixed).astype(np.uint8)


def _check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidInput(f"{name} {value:g}: expected a number from 0 to 1")
