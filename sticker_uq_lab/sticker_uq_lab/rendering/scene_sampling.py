# SPDX-License-Identifier: Apache-2.0
"""Samples laptop scenes from a seed: laptop, pose, logos, stickers, light and camera; and variants of a scene."""

import math
from dataclasses import replace
from typing import Literal

import cv2
import numpy as np

from sticker_uq.scene import InvalidInput, Rng
from sticker_uq_lab.rendering import scene_spec, study_sampling
from sticker_uq_lab.rendering.backgrounds import TOOLS
from sticker_uq_lab.rendering.emblems import logo_mask, new_logo
from sticker_uq_lab.rendering.laptops import BRANDS, FINISHES, deck_layout
from sticker_uq_lab.rendering.render import RenderedScene, render
from sticker_uq_lab.rendering.scene_spec import Colour, LaptopSpec, PoseSpec, SceneSpec
from sticker_uq_lab.rendering.sticker_sampling import place_stickers

MAX_STICKERS = 8
Profile = Literal["large", "study"]
"""Large stickers on a lid or deck that fills the picture, or small ones as in the cell of Lu et al."""
MOST_OF_PROFILE = {"large": MAX_STICKERS, "study": study_sampling.MOST_STICKERS}

_BENCHES: dict[str, tuple[Colour, ...]] = {
    "wood": ((96, 136, 176), (60, 88, 124), (140, 176, 204), (44, 62, 88)),
    "mat": ((52, 50, 50), (96, 92, 40), (120, 84, 40), (70, 92, 60), (90, 90, 90)),
    "conveyor": ((58, 56, 56), (74, 84, 62), (98, 72, 50)),
    "metal": ((150, 148, 146), (120, 118, 116), (178, 176, 174)),
    "cloth": ((120, 92, 70), (150, 150, 152), (70, 66, 96), (60, 84, 66), (196, 204, 208)),
}


def sample_scene(seed: int, *, stickers: int | None = None, profile: Profile = "large") -> SceneSpec:
    """The scene of a seed; `stickers` (0 to 8, of the profile study 0 to 20) fixes their number without changing the rest.

    Object ids count from 1, logos first. InvalidInput for a negative seed or a number of stickers out of range.
    """
    if seed < 0:
        raise InvalidInput(f"seed {seed}: expected a number of 0 or more")
    if stickers is not None and not 0 <= stickers <= MOST_OF_PROFILE[profile]:
        raise InvalidInput(f"stickers {stickers}: expected 0 to {MOST_OF_PROFILE[profile]}")
    if profile == "study":
        return _sample_study(seed, stickers)
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(7)]
    laptop_rng, pose_rng, logo_rng, sticker_rng, bench_rng, light_rng, camera_rng = streams
    laptop = _sample_laptop(laptop_rng)
    pose = _sample_pose(pose_rng, laptop)
    logos = _sample_logos(logo_rng, laptop, pose)
    drawn = int(sticker_rng.integers(0, MAX_STICKERS + 1))
    count = drawn if stickers is None else stickers
    return SceneSpec(
        seed=seed,
        laptop=laptop,
        pose=pose,
        background=_sample_background(bench_rng),
        light=_sample_light(light_rng),
        camera=_sample_camera(camera_rng),
        logos=logos,
        stickers=place_stickers(sticker_rng, laptop, pose, logos, count),
    )


def _sample_study(seed: int, stickers: int | None) -> SceneSpec:
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence((seed, 1)).spawn(8)]
    laptop_rng, pose_rng, logo_rng, sticker_rng, bench_rng, light_rng, camera_rng, thing_rng = streams
    laptop = study_sampling.study_laptop(laptop_rng, _sample_laptop(laptop_rng))
    pose, frame = study_sampling.study_pose(pose_rng, laptop)
    logos = study_sampling.study_logos(logo_rng, laptop, frame)
    drawn, torn = study_sampling.sticker_count(sticker_rng, laptop), sticker_rng.random() < 0.06
    count = drawn if stickers is None else stickers
    things, residues = study_sampling.study_things(thing_rng, laptop, frame)
    return SceneSpec(
        seed=seed,
        laptop=laptop,
        pose=pose,
        background=_sample_background(bench_rng),
        light=study_sampling.study_light(light_rng, _sample_light(light_rng)),
        camera=study_sampling.study_camera(camera_rng, _sample_camera(camera_rng)),
        logos=logos,
        stickers=study_sampling.study_stickers(sticker_rng, laptop, frame, logos, count, torn),
        residues=residues,
        things=things,
    )


def _jitter(rng: Rng, colour: Colour, amount: float) -> Colour:
    common = rng.uniform(-amount, amount)
    blue, green, red = (int(np.clip(part + common + rng.uniform(-3, 3), 8, 248)) for part in colour)
    return blue, green, red


def _sample_laptop(rng: Rng) -> LaptopSpec:
    finish = FINISHES[rng.integers(len(FINISHES))]
    colour = _jitter(rng, finish.colour, 10)
    # Some makes put a dark deck under a coloured lid.
    deck = colour if rng.random() < 0.75 else _jitter(rng, (48, 46, 45), 8)
    keys_fit = deck == colour
    return LaptopSpec(
        brand=int(rng.integers(len(BRANDS))),
        view="lid" if rng.random() < 0.55 else "deck",
        depth=rng.uniform(655, 725),
        colour=colour,
        deck_colour=deck,
        key_colour=finish.keys if keys_fit else (34, 33, 32),
        legend_colour=finish.legends if keys_fit else (215, 215, 215),
        texture=str(rng.choice(finish.textures)),
        decoration=str(rng.choice(("none", "none", "none", "antenna", "grooves", "twotone", "slash"))),
        gloss=float(np.clip(finish.gloss + rng.uniform(-0.15, 0.2), 0.1, 0.9)),
        corner=rng.uniform(14, 44),
        numpad=bool(rng.random() < 0.3),
        trackpoint=bool(rng.random() < 0.2),
        fingerprint=bool(rng.random() < 0.3),
        hinge_below=bool(rng.random() < 0.5),
        scratches=int(rng.integers(0, 14)),
        dust=rng.uniform(0, 1),
        seed=int(rng.integers(2**31)),
    )


def _sample_pose(rng: Rng, laptop: LaptopSpec) -> PoseSpec:
    turned = rng.random()
    angle = float(np.clip(rng.normal(0, 9), -25, 25))
    if turned < 0.06:
        angle += 180
    elif turned < 0.12:
        angle += 90 if rng.random() < 0.5 else -90
    turn = math.radians(angle)
    c, s = math.cos(turn), math.sin(turn)
    # Looking slightly from the side: the far edge shrinks by up to a tenth.
    tilt = rng.normal(0, 4e-5, 2).clip(-9e-5, 9e-5)
    centred = np.array([[1, 0, -500], [0, 1, -laptop.depth / 2], [0, 0, 1]], np.float64)
    rotated = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ centred
    tilted = np.array([[1, 0, 0], [0, 1, 0], [tilt[0], tilt[1], 1]]) @ rotated
    depth = laptop.depth
    corners = np.array([[[0, 0], [1000, 0], [1000, depth], [0, depth]]], np.float64)
    outline = cv2.perspectiveTransform(corners, tilted)[0]
    low, high = outline.min(axis=0), outline.max(axis=0)
    fit = min(0.97 / (high[0] - low[0]), 0.97 * scene_spec.FRAME_HEIGHT / (high[1] - low[1]))
    scale = min(fit, rng.uniform(0.7, 0.95) / 1000)
    space = np.maximum(0, np.array([1, scene_spec.FRAME_HEIGHT]) - scale * (high - low)) / 2
    middle = np.array([0.5, scene_spec.FRAME_HEIGHT / 2]) + rng.uniform(-0.8, 0.8, 2) * space
    shift = middle - scale * (low + high) / 2
    matrix = np.array([[scale, 0, shift[0]], [0, scale, shift[1]], [0, 0, 1]]) @ tilted
    return PoseSpec(tuple(float(value) for value in matrix.ravel()), float(scale * 1000), angle)


def _sample_logos(rng: Rng, laptop: LaptopSpec, pose: PoseSpec) -> tuple[scene_spec.LogoSpec, ...]:
    if rng.random() < 0.03:
        return ()
    surface = laptop.colour if laptop.view == "lid" else laptop.deck_colour
    depth = laptop.depth
    chosen = rng.random()
    if laptop.view == "lid":
        layout = str(rng.choice(("emblem", "emblem", "word", "stacked", "row")))
        sizes = {"emblem": (0.09, 0.17), "word": (0.15, 0.25), "stacked": (0.13, 0.21), "row": (0.17, 0.26)}
        size, below = sizes[layout], laptop.hinge_below
        if chosen < 0.6:
            centre = (500.0 + rng.uniform(-20, 20), depth * rng.uniform(0.42, 0.56))
        elif chosen < 0.8:
            centre = (500.0, depth * rng.uniform(0.7, 0.8))
        else:
            centre = (float(rng.choice((190.0, 810.0))), depth * rng.uniform(0.78, 0.86))
        logos = [_logo(rng, 1, laptop, pose, layout, size, centre, surface, below)]
        if layout == "emblem" and chosen < 0.6 and rng.random() < 0.2:
            corner = (float(rng.choice((170.0, 830.0))), depth * 0.88)
            logos.append(_logo(rng, 2, laptop, pose, "word", (0.14, 0.17), corner, surface, below))
        return tuple(logos)
    parts = deck_layout(laptop)
    logos = []
    if chosen < 0.62:
        strip = (500.0, 0.088 * depth)
        logos.append(_logo(rng, 1, laptop, pose, "word", (0.14, 0.19), strip, (26, 24, 24), False, 46.0))
    if chosen > 0.5:
        layout = str(rng.choice(("word", "row", "emblem")))
        size = (0.075, 0.1) if layout == "emblem" else (0.14, 0.2)
        palm = parts.palm_right if rng.random() < 0.6 else parts.palm_left
        centre = ((palm[0] + palm[2]) / 2 + rng.uniform(-20, 20), palm[3] - rng.uniform(50, 80))
        logos.append(_logo(rng, len(logos) + 1, laptop, pose, layout, size, centre, surface, False))
    return tuple(logos)


def _logo(
    rng: Rng,
    identity: int,
    laptop: LaptopSpec,
    pose: PoseSpec,
    layout: str,
    size: tuple[float, float],
    centre: scene_spec.Point,
    surface: Colour,
    upside_down: bool,
    max_height: float = 220.0,
) -> scene_spec.LogoSpec:
    """A logo whose longer side is `size` (bounds) of the picture's width."""
    height, width = logo_mask(laptop.brand, layout).shape
    longer = rng.uniform(*size) / pose.width * 1000
    scale = min(longer / max(width, height), max_height / height)
    width, height = width * scale, height * scale
    x = float(np.clip(centre[0], width / 2 + 30, 970 - width / 2))
    y = float(min(centre[1], laptop.depth - 26 - height / 2))
    # A lid is read from the side opposite its hinge.
    spot = (x, laptop.depth - y) if upside_down and laptop.view == "lid" else (x, y)
    angle = 180.0 if upside_down else 0.0
    return new_logo(rng, identity, laptop.brand, layout, spot, (width, height), surface, angle)


def _sample_background(rng: Rng) -> scene_spec.BackgroundSpec:
    kind = str(rng.choice(tuple(_BENCHES)))
    colours = _BENCHES[kind]
    tools = tuple(str(tool) for tool in rng.choice(TOOLS, int(rng.integers(0, 4)), replace=False))
    colour = _jitter(rng, colours[rng.integers(len(colours))], 10)
    return scene_spec.BackgroundSpec(kind, colour, rng.uniform(-40, 40), tools, int(rng.integers(2**31)))


def _sample_light(rng: Rng) -> scene_spec.LightSpec:
    return scene_spec.LightSpec(
        direction=rng.uniform(0, 360),
        gradient=rng.uniform(0, 0.45),
        hot_spot=(rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.65)),
        hot_strength=rng.uniform(0, 0.3),
        hot_radius=rng.uniform(0.15, 0.45),
        specular=str(rng.choice(("none", "streak", "streak", "window", "lamp"))),
        specular_centre=(rng.uniform(0.15, 0.85), rng.uniform(0.1, 0.65)),
        specular_angle=rng.uniform(0, 180),
        specular_strength=rng.uniform(25, 130),
        shadow=str(rng.choice(("none", "none", "edge", "bars", "arm"))),
        shadow_strength=rng.uniform(0.15, 0.45),
        shadow_angle=rng.uniform(0, 360),
        shadow_offset=rng.uniform(-0.3, 0.3),
        vignette=rng.uniform(0, 0.35),
    )


def _sample_camera(rng: Rng) -> scene_spec.CameraSpec:
    warm = rng.uniform(-0.08, 0.08)
    tint = rng.uniform(-0.02, 0.02)
    return scene_spec.CameraSpec(
        blur=rng.uniform(0, 0.0013) if rng.random() < 0.7 else rng.uniform(0.0013, 0.0022),
        motion=rng.uniform(0.003, 0.007) if rng.random() < 0.12 else 0.0,
        motion_angle=rng.uniform(0, 180),
        noise=rng.uniform(0.8, 6.5),
        noise_seed=int(rng.integers(2**31)),
        white_balance=(float(1 - warm), float(1 + tint), float(1 + warm)),
        gamma=rng.uniform(0.85, 1.2),
        exposure=rng.uniform(0.82, 1.12),
    )


def sticker_on_logo(scene: SceneSpec, nearness: float) -> SceneSpec:
    """``scene`` with its first sticker over its first logo: side by side at ``nearness`` 0, middle on middle at 1.

    It comes from where it lay and is drawn last. Unchanged without a sticker or a logo.
    """
    _check_share("nearness", nearness)
    if not scene.stickers or not scene.logos:
        return scene
    sticker, logo = scene.stickers[0], scene.logos[0]
    away = np.subtract(sticker.centre, logo.centre)
    direction = away if np.any(away) else np.array([1.0, 0.0])
    reach = np.array([sticker.width + logo.width, sticker.height + logo.height]) / 2
    touching = direction * np.min(reach / np.maximum(np.abs(direction), 1e-9))  # upright rectangles
    x, y = np.asarray(logo.centre) + (1 - nearness) * touching
    moved = replace(sticker, centre=(float(x), float(y)))
    return replace(scene, stickers=(*scene.stickers[1:], moved))


def with_prints(
    scene: SceneSpec,
    opacity: float,
    size: tuple[int, int] = (960, 720),
    printed: tuple[int, ...] | None = None,
) -> tuple[RenderedScene, tuple[int, ...]]:
    """``scene`` with the stickers ``printed``, by default every second, as prints of the lid itself, and the ids of those.

    ``opacity`` of the ink: 0 is the bare lid, 1 looks like the sticker. A print is no sticker and is not labelled.
    """
    _check_share("opacity", opacity)
    if printed is None:
        printed = tuple(sticker.id for sticker in scene.stickers[::2])
    bare = scene
    for identity in printed:
        bare = bare.without_sticker(identity)
    lid, covered = render(bare, size), render(scene, size)
    mixed = lid.image + np.float32(opacity) * (covered.image.astype(np.float32) - lid.image)
    return replace(lid, image=np.rint(mixed).astype(np.uint8)), printed


def _check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidInput(f"{name} {value:g}: expected a number from 0 to 1")
