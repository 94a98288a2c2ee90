# SPDX-License-Identifier: Apache-2.0
"""Renders a scene description, lit and photographed, to its picture and the boxes of the visible objects."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.io.coco import EncodedScene
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.rendering import scene_spec
from sticker_uq_lab.rendering.backgrounds import paint_background
from sticker_uq_lab.rendering.emblems import paint_logo
from sticker_uq_lab.rendering.laptops import Surface, paint_laptop
from sticker_uq_lab.rendering.painting import Floats, Image, grain, rotate
from sticker_uq_lab.rendering.scene_spec import FRAME_HEIGHT, SceneSpec
from sticker_uq_lab.rendering.stickers import paint_residue, paint_sticker
from sticker_uq_lab.rendering.things import lay_thing

_COARSE = 96  # columns of the coarse grid on which light is computed before upsampling


def _grid(width: int, height: int) -> tuple[Floats, Floats]:
    """Reference-frame coordinates of a coarse grid over a picture of `width` by `height`."""
    columns, rows = _COARSE, max(2, round(_COARSE * height / width))
    scale = min(width, height / FRAME_HEIGHT)
    xs = ((np.arange(columns, dtype=np.float32) + 0.5) / columns - 0.5) * (width / scale) + 0.5
    ys = ((np.arange(rows, dtype=np.float32) + 0.5) / rows - 0.5) * (height / scale) + FRAME_HEIGHT / 2
    return np.broadcast_to(xs[None, :], (rows, columns)), np.broadcast_to(ys[:, None], (rows, columns))


def _turn(x: Floats, y: Floats, centre: tuple[float, float], angle: float) -> tuple[Floats, Floats]:
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    dx, dy = x - np.float32(centre[0]), y - np.float32(centre[1])
    return dx * c + dy * s, dy * c - dx * s


def light_map(light: scene_spec.LightSpec, width: int, height: int) -> Floats:
    x, y = _grid(width, height)
    along, _ = _turn(x, y, (0.5, FRAME_HEIGHT / 2), light.direction)
    field = 1.0 + light.gradient * along
    away = (x - light.hot_spot[0]) ** 2 + (y - light.hot_spot[1]) ** 2
    field = field + light.hot_strength * np.exp(-away / (2 * light.hot_radius**2))
    field = field * (1 - light.shadow_strength * _shadow(light, x, y))
    corner = ((x - 0.5) ** 2 + (y - FRAME_HEIGHT / 2) ** 2) / 0.39
    field = field * (1 - light.vignette * corner)
    return cv2.resize(
        np.maximum(field, 0.15).astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR
    )


def _shadow(light: scene_spec.LightSpec, x: Floats, y: Floats) -> Floats:
    along, across = _turn(x, y, (0.5 + light.shadow_offset, FRAME_HEIGHT / 2), light.shadow_angle)
    if light.shadow == "edge":
        dark = _sigmoid(along / 0.025)
    elif light.shadow == "bars":
        dark = _sigmoid((np.sin(along * 16) - 0.25) / 0.18)
    elif light.shadow == "arm":
        reach = 0.07 + 0.05 * np.clip(across + 0.4, 0, 1)
        dark = _sigmoid((reach - np.abs(along)) / 0.012)
        dark = dark * _sigmoid((0.12 - across) / 0.02)
    else:
        dark = np.zeros_like(along)
    return dark


def specular_map(light: scene_spec.LightSpec, width: int, height: int) -> Floats:
    """Grey levels (height,width) that a perfect mirror would add to every pixel."""
    x, y = _grid(width, height)
    along, across = _turn(x, y, light.specular_centre, light.specular_angle)
    if light.specular == "streak":
        glow = np.exp(-((along / 0.09) ** 2)) * np.exp(-((across / 0.6) ** 2))
    elif light.specular == "lamp":
        glow = np.exp(-(along**2 + across**2) / (2 * 0.06**2))
    elif light.specular == "window":
        panes = _soft_box(np.abs(along) - 0.075, 0.06) * _soft_box(np.abs(across) - 0.1, 0.085)
        glow = panes
    else:
        return np.zeros((height, width), np.float32)
    grown = cv2.resize(glow.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    return grown * np.float32(light.specular_strength)


def _sigmoid(values: Floats) -> Floats:
    return (1 / (1 + np.exp(-np.clip(values, -40, 40)))).astype(np.float32)


def _soft_box(distance: Floats, half: float) -> Floats:
    return _sigmoid((half - np.abs(distance)) / 0.006)


def photograph(image: Image, camera: scene_spec.CameraSpec) -> Image:
    """`image` after lens, sensor and exposure; only the noise depends on the camera's `noise_seed`."""
    height, width = image.shape[:2]
    sigma = camera.blur * width
    if sigma > 0.25:
        image = cv2.GaussianBlur(image, (0, 0), sigma)
    length = camera.motion * width
    if length >= 2:
        image = cv2.filter2D(image, -1, _motion_kernel(length, camera.motion_angle))
    values = np.arange(256, dtype=np.float64) / 255
    curve = np.empty((1, 256, 3), np.uint8)
    for channel, gain in enumerate(camera.white_balance):
        exposed = np.clip(values * gain * camera.exposure, 0, 1) ** camera.gamma
        curve[0, :, channel] = np.rint(exposed * 255)
    image = cv2.LUT(image, curve)
    rng = np.random.default_rng(camera.noise_seed)
    # Demosaicing spreads a sensor's colour noise over neighbouring pixels; its brightness noise stays fine.
    fine = grain(rng, width, height) * np.float32(camera.noise)
    channels = []
    for _ in range(3):
        coarse = grain(rng, (width + 1) // 2, (height + 1) // 2) * np.float32(camera.noise * 0.7)
        channels.append(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR) + fine)
    return cv2.add(image, cv2.merge(channels), dtype=cv2.CV_8U)


def _motion_kernel(length: float, angle: float) -> Floats:
    size = 2 * math.ceil(length / 2) + 1
    kernel = np.zeros((size, size), np.float32)
    dx, dy = math.cos(math.radians(angle)) * length / 2, math.sin(math.radians(angle)) * length / 2
    middle = size // 2
    start = (round(middle - dx), round(middle - dy))
    cv2.line(kernel, start, (round(middle + dx), round(middle + dy)), (1.0,), 1, cv2.LINE_AA)
    return kernel / kernel.sum()


MIN_VISIBLE = 0.25
"""Lowest visible share of an annotated object."""
_CANVAS_DETAIL = 1.15
"""Canvas pixels per picture pixel; a little more than one keeps prints sharp when the canvas is tilted."""
_MARGIN_UNITS = 130.0


@dataclass(frozen=True)
class RenderedScene:
    """A rendered picture and its ground truth for N objects that are visible enough to be annotated."""

    image: Image
    """(H,W,3) uint8, blue green red."""
    boxes: npt.NDArray[np.float32]
    """(N,4) x1 y1 x2 y2 in pixels, tight around the visible part."""
    labels: npt.NDArray[np.int64]
    """(N,) class ids: 1 logo, 2 sticker."""
    ids: npt.NDArray[np.int64]
    """(N,) ids of the logos and stickers in the scene's description."""
    visible_fraction: Floats
    """(N,) visible share of the object's area."""
    id_map: Image
    """(H,W) uint8, the id of the object each pixel shows, 0 where there is none."""


def render(spec: SceneSpec, size: tuple[int, int] = (960, 720)) -> RenderedScene:
    """Render a laptop scene at `size` (width, height) in pixels.

    The result is a deterministic function of the arguments. Scenes that differ only by a sticker differ only where that sticker,
    its shadow and the surface under it are visible. InvalidInput if `size` is below 64 pixels.
    """
    width, height = size
    if width < 64 or height < 64:
        raise InvalidInput(f"size {width}x{height}: expected at least 64x64 pixels")
    to_picture = laptop_to_picture(spec.pose, width, height)
    scale = spec.pose.width * min(width, height / FRAME_HEIGHT) / 1000 * _CANVAS_DETAIL
    surface = paint_laptop(spec.laptop, scale, round(_MARGIN_UNITS * scale))
    for residue in spec.residues:
        _apply_residue(surface, residue)
    id_map = np.zeros(surface.coverage.shape, np.uint8)
    full_areas = {logo.id: _apply_logo(surface, id_map, logo) for logo in spec.logos}
    full_areas |= {sticker.id: _apply_sticker(surface, id_map, sticker) for sticker in spec.stickers}

    to_units = np.array(
        [[1 / scale, 0, -surface.margin / scale], [0, 1 / scale, -surface.margin / scale], [0, 0, 1]]
    )
    matrix = to_picture @ to_units
    image = paint_background(spec.background, width, height)
    _cast_shadow(image, spec, to_picture)
    _light_and_compose(image, spec, surface, matrix)
    hidden = np.zeros(image.shape[:2], np.uint8)
    for thing in spec.things:
        lay_thing(image, thing, hidden)
    image = photograph(image, spec.camera)
    return _annotate(spec, image, id_map, matrix, full_areas, hidden)


def laptop_to_picture(pose: scene_spec.PoseSpec, width: int, height: int) -> npt.NDArray[np.float64]:
    scale = min(width, height / FRAME_HEIGHT)
    left, top = (width - scale) / 2, (height - scale * FRAME_HEIGHT) / 2
    to_picture = np.array([[scale, 0, left], [0, scale, top], [0, 0, 1]])
    return to_picture @ np.asarray(pose.homography).reshape(3, 3)


def _light_and_compose(
    image: Image, spec: SceneSpec, surface: Surface, matrix: npt.NDArray[np.float64]
) -> None:
    height, width = image.shape[:2]
    layers = cv2.merge((surface.colours, surface.coverage))
    seen = cv2.warpPerspective(layers, matrix, (width, height), flags=cv2.INTER_LINEAR)
    uncovered = cv2.bitwise_not(np.ascontiguousarray(seen[:, :, 3]))
    behind = cv2.multiply(image, cv2.merge((uncovered, uncovered, uncovered)), scale=1 / 255)
    composed = cv2.add(np.ascontiguousarray(seen[:, :, :3]), behind)
    light = light_map(spec.light, width, height)
    lit = cv2.multiply(composed, cv2.merge((light, light, light)), dtype=cv2.CV_32F)
    if spec.light.specular != "none":
        gloss = cv2.warpPerspective(surface.gloss, matrix, (width, height), flags=cv2.INTER_LINEAR)
        glow = cv2.multiply(specular_map(spec.light, width, height), gloss, scale=1 / 255, dtype=cv2.CV_32F)
        lit = cv2.add(lit, cv2.merge((glow, glow, glow)))
    image[:] = cv2.convertScaleAbs(lit)


def _cast_shadow(image: Image, spec: SceneSpec, to_picture: npt.NDArray[np.float64]) -> None:
    """Darken the bench beside the laptop, away from the light."""
    height, width = image.shape[:2]
    depth = spec.laptop.depth
    corners = np.array([[[0, 0], [1000, 0], [1000, depth], [0, depth]]], np.float64)
    outline = cv2.perspectiveTransform(corners, to_picture)[0]
    turn, reach = math.radians(spec.light.direction), 0.012 * width
    mask = np.zeros((height // 4 + 1, width // 4 + 1), np.uint8)
    for spread, value in ((1.0, 150), (0.4, 235)):
        shifted = outline - spread * reach * np.array([math.cos(turn), math.sin(turn)])
        cv2.fillPoly(mask, [np.rint(shifted * 4).astype(np.int32)], (value,), cv2.LINE_AA, 4)
    mask = cv2.GaussianBlur(mask, (0, 0), max(0.8, 0.0035 * width))
    full = cv2.resize(mask, (mask.shape[1] * 4, mask.shape[0] * 4), interpolation=cv2.INTER_LINEAR)[
        :height, :width
    ]
    keep = cv2.convertScaleAbs(full, alpha=-0.62, beta=255)
    image[:] = cv2.multiply(image, cv2.merge((keep, keep, keep)), scale=1 / 255)


def _blend(surface: Surface, rows: slice, columns: slice, colours: Floats, cover: Floats) -> None:
    """Lay premultiplied `colours` with coverage `cover` (0 to 1) over a part of the surface."""
    region, coverage = surface.colours[rows, columns], surface.coverage[rows, columns]
    left = 1 - cover
    region[:] = np.clip(np.rint(region * left[:, :, None] + colours), 0, 255).astype(np.uint8)
    coverage[:] = np.rint(coverage * left + 255 * cover).astype(np.uint8)


def _apply_logo(surface: Surface, id_map: Image, logo: scene_spec.LogoSpec) -> int:
    width, height = max(6, round(logo.width * surface.scale)), max(4, round(logo.height * surface.scale))
    colours, mask, shine = paint_logo(logo, width, height)
    if logo.angle == 180:
        colours, mask, shine = (np.ascontiguousarray(layer[::-1, ::-1]) for layer in (colours, mask, shine))
    elif logo.angle:
        colours, mask, shine = (rotate(layer, logo.angle) for layer in (colours, mask, shine))
        height, width = mask.shape
    left = round(surface.margin + logo.centre[0] * surface.scale - width / 2)
    top = round(surface.margin + logo.centre[1] * surface.scale - height / 2)
    rows, columns = slice(top, top + height), slice(left, left + width)
    cover = mask.astype(np.float32) / 255
    _blend(surface, rows, columns, colours * cover[:, :, None], cover)
    surface.gloss[rows, columns] = cv2.max(surface.gloss[rows, columns], shine)
    id_map[rows, columns][mask > 110] = logo.id
    return int(np.count_nonzero(mask > 110))


def _apply_residue(surface: Surface, residue: scene_spec.ResidueSpec) -> None:
    colours, coverage = paint_residue(residue, surface.scale)
    x, y = (surface.margin + part * surface.scale for part in residue.centre)
    left, top = round(x - coverage.shape[1] / 2), round(y - coverage.shape[0] / 2)
    rows, columns = slice(top, top + coverage.shape[0]), slice(left, left + coverage.shape[1])
    # No residue beside the laptop.
    cover = coverage * (surface.coverage[rows, columns].astype(np.float32) / 255)
    _blend(surface, rows, columns, colours * cover[:, :, None], cover)
    gloss = surface.gloss[rows, columns]
    gloss[:] = np.rint(gloss * (1 - 0.7 * cover)).astype(np.uint8)


def _apply_sticker(surface: Surface, id_map: Image, sticker: scene_spec.StickerSpec) -> int:
    scale, detail = surface.scale, 1.3
    colours, coverage = paint_sticker(sticker, scale * detail)
    patch_height, patch_width = coverage.shape
    turn = math.radians(sticker.angle)
    c, s = math.cos(turn) / detail, math.sin(turn) / detail
    reach_x = (abs(c) * patch_width + abs(s) * patch_height) / 2 + 6
    reach_y = (abs(s) * patch_width + abs(c) * patch_height) / 2 + 6
    x, y = (surface.margin + part * scale for part in sticker.centre)
    left, top = max(0, math.floor(x - reach_x)), max(0, math.floor(y - reach_y))
    right = min(id_map.shape[1], math.ceil(x + reach_x))
    bottom = min(id_map.shape[0], math.ceil(y + reach_y))
    shift = np.array([x - left, y - top]) - np.array([[c, -s], [s, c]]) @ np.array(
        [patch_width / 2, patch_height / 2]
    )
    matrix = np.array([[c, -s, shift[0]], [s, c, shift[1]]])
    size = (right - left, bottom - top)
    mask = cv2.warpAffine(coverage, matrix, size, flags=cv2.INTER_LINEAR)
    inks = cv2.warpAffine(colours, matrix, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    rows, columns = slice(top, bottom), slice(left, right)
    cover = mask.astype(np.float32) / 255
    drop = max(1, round(1.6 * scale))
    shadow = cv2.GaussianBlur(np.roll(cover, (drop, drop), (0, 1)), (0, 0), max(0.8, 2.2 * scale))
    region = surface.colours[rows, columns]
    region[:] = np.rint(region * (1 - 0.4 * shadow)[:, :, None]).astype(np.uint8)
    _blend(surface, rows, columns, inks * cover[:, :, None], cover)
    gloss = surface.gloss[rows, columns]
    gloss[:] = np.rint(gloss * (1 - cover) + 255 * sticker.gloss * cover).astype(np.uint8)
    covered = mask > 127
    id_map[rows, columns][covered] = sticker.id
    return int(np.count_nonzero(covered))


def _annotate(
    spec: SceneSpec,
    image: Image,
    id_map: Image,
    matrix: npt.NDArray[np.float64],
    full_areas: dict[int, int],
    hidden: Image,
) -> RenderedScene:
    height, width = image.shape[:2]
    pad = width // 6
    shift = np.array([[1, 0, pad], [0, 1, pad], [0, 0, 1]], np.float64) @ matrix
    wide = cv2.warpPerspective(id_map, shift, (width + 2 * pad, height + 2 * pad), flags=cv2.INTER_NEAREST)
    seen = np.ascontiguousarray(wide[pad : pad + height, pad : pad + width])
    seen[hidden > 127] = 0
    on_canvas, in_wide, in_picture = (
        cv2.calcHist([where], [0], None, [256], [0, 256]).ravel() for where in (id_map, wide, seen)
    )
    boxes, labels, ids, fractions = [], [], [], []
    classes = [(logo.id, ObjectClass.LOGO) for logo in spec.logos]
    classes += [(sticker.id, ObjectClass.STICKER) for sticker in spec.stickers]
    for identity, label in classes:
        if full_areas[identity] == 0 or in_wide[identity] == 0:
            continue
        # Share that is not covered by other stickers, times the share of that inside the picture and under no thing.
        fraction = on_canvas[identity] / full_areas[identity] * in_picture[identity] / in_wide[identity]
        if fraction < MIN_VISIBLE:
            continue
        x, y, w, h = cv2.boundingRect((seen == identity).astype(np.uint8))
        boxes.append((x, y, x + w, y + h))
        labels.append(int(label))
        ids.append(identity)
        fractions.append(min(1.0, fraction))
    return RenderedScene(
        image=image,
        boxes=np.asarray(boxes, np.float32).reshape(-1, 4),
        labels=np.asarray(labels, np.int64),
        ids=np.asarray(ids, np.int64),
        visible_fraction=np.asarray(fractions, np.float32),
        id_map=seen,
    )


def encode_scene(seed: int, scene: RenderedScene, image_format: str = "jpg") -> EncodedScene:
    """Compress the picture of `scene`; InvalidInput for a format other than "jpg" or "png"."""
    return EncodedScene.of(scene.image, seed, image_format, scene.boxes, scene.labels)
