# SPDX-License-Identifier: Apache-2.0
"""The pictures of benchmarks.hard: laptops in graded circumstances.

The laptop of a seed is the same in every case, so that cases compare laptop by laptop. Nothing of the splits overlaps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sticker_uq.scene import FloatArray
from sticker_uq_lab.corruptions import TRANSFORMATIONS, LabelledPicture, transform
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.render import RenderedScene
from sticker_uq_lab.rendering.scene_sampling import Profile, sticker_on_logo, with_prints
from sticker_uq_lab.rendering.scene_spec import SceneSpec, StickerSpec

Size = tuple[int, int]
SIZES: dict[Profile, Size] = {"large": (960, 720), "study": (960, 804)}
"""Size of the pictures of a profile, px: its own proportions."""
_MOST_PEELED = 0.35
"""Highest part of a sticker that can be folded over."""
SPLITS = {
    "fit": range(200_000_000, 200_010_000),
    "limits": range(210_000_000, 210_010_000),
    "development": range(220_000_000, 220_010_000),
    "test": range(300_000_000, 300_010_000),
}
"""Seeds of the laptops that combinations are fitted on, that limits are set on, and that development and test measure.

The packaged networks were trained and chosen on seeds below 10,000,000.
"""
STRENGTHS = ("weak", "medium", "strong")
NONE = "none"
"""Circumstance and strength of a laptop as it is sampled."""
BARE = "bare"
"""Circumstance of a laptop without a sticker."""
_STEPS = (1, 3, 5)  # weak, medium and strong among the strengths that a transformation names


@dataclass(frozen=True)
class HardScene:
    """A picture and what is true about it.

    ``image`` (H, W, 3) uint8 BGR; ``boxes`` (N, 4) px and ``labels`` (N,) of the visible logos and stickers; ``hidden`` (H, 4):
    objects of which too little is visible to tell what a removal there is; ``things`` (K, 4): boxes of what is neither logo nor
    sticker and was put there.
    """

    image: NDArray[np.uint8]
    boxes: FloatArray
    labels: NDArray[np.int64]
    hidden: FloatArray
    things: FloatArray


@dataclass(frozen=True)
class Case:
    """A difficulty of laptops of ``profile``; ``strength``: one of STRENGTHS, or NONE without any."""

    name: str
    strength: str
    profile: Profile = "large"

    def scene(self, seed: int) -> HardScene:
        """The laptop of ``seed`` in this case."""
        stickers, size = 0 if self.name == BARE else None, SIZES[self.profile]
        spec = sample_scene(seed, stickers=stickers, profile=self.profile)
        if self.name in (NONE, BARE):
            return _of_render(render(spec, size))
        return _SHIFTS[self.name](spec, STRENGTHS.index(self.strength), size)


def cases(parts: Sequence[str] = ("shift",), profile: Profile = "large") -> list[Case]:
    """Every case of ``parts`` on laptops of ``profile``, the unchanged laptop first."""
    found = [(NONE, NONE)]
    if "shift" in parts:
        found += [(name, strength) for name in _SHIFTS for strength in STRENGTHS]
    return [Case(*one, profile) for one in found]


def _of_render(scene: RenderedScene, things: FloatArray | None = None) -> HardScene:
    none = np.zeros((0, 4), np.float32)
    return HardScene(scene.image, scene.boxes, scene.labels, none, none if things is None else things)


def _corrupted(spec: SceneSpec, step: int, size: Size, name: str, **parameters: str) -> HardScene:
    scene = render(spec, size)
    shapes = np.zeros(scene.id_map.shape, np.uint8)
    for number, identity in enumerate(scene.ids.tolist()):
        shapes[scene.id_map == identity] = number + 1
    before = LabelledPicture.of(scene.image, scene.boxes, scene.labels, shapes, spec)
    strength = float(TRANSFORMATIONS[name].ladder[_STEPS[step]])
    after = transform(before, name, strength, spec.seed, **parameters)
    return HardScene(
        after.image, after.boxes, after.labels, before.boxes[after.hidden], np.zeros((0, 4), np.float32)
    )


def torn(scene: SceneSpec, amount: float) -> SceneSpec:
    """``scene`` with every sticker worn and peeled by at least ``amount``, 0 (as it is) to 1 (in shreds, a third folded over)."""

    def worse(sticker: StickerSpec) -> StickerSpec:
        peel = max(sticker.peel, _MOST_PEELED * amount)
        return replace(
            sticker, wear=max(sticker.wear, amount), faded=max(sticker.faded, amount / 2), peel=peel
        )

    return replace(scene, stickers=tuple(map(worse, scene.stickers)))


def _printed(spec: SceneSpec, step: int, size: Size) -> HardScene:
    scene, printed = with_prints(spec, (0.3, 0.5, 0.7)[step], size)
    original = render(spec, size)
    return _of_render(scene, original.boxes[np.isin(original.ids, printed)])


_SHIFTS: dict[str, Callable[[SceneSpec, int, Size], HardScene]] = {
    "glare": partial(_corrupted, name="glare"),
    "motion blur": partial(_corrupted, name="motion_blur"),
    "defocus": partial(_corrupted, name="defocus"),
    "noise": partial(_corrupted, name="sensor_noise"),
    "underexposure": partial(_corrupted, name="low_light"),
    "overexposure": partial(_corrupted, name="overexposure"),
    "colour cast": partial(_corrupted, name="colour_cast"),
    "hand": partial(_corrupted, name="occlusion", tool="hand"),
    "gripper": partial(_corrupted, name="occlusion", tool="gripper"),
    "cables": partial(_corrupted, name="occlusion", tool="cables"),
    "unknown make": partial(_corrupted, name="unknown_make"),
    "residue": partial(_corrupted, name="sticker_residue"),
    "torn stickers": lambda spec, step, size: _of_render(render(torn(spec, (0.4, 0.7, 1.0)[step]), size)),
    "sticker on logo": lambda spec, step, size: _of_render(
        render(sticker_on_logo(spec, (0.3, 0.6, 0.9)[step]), size)
    ),
    "printed lid": _printed,
}
