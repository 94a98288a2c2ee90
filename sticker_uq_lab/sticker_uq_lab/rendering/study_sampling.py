# SPDX-License-Identifier: Apache-2.0
"""Samples scenes like those of the cell of Lu et al.: small stickers, the closed lid or the laptop opened flat, half and half.

Sizes, counts, proportions, contact and places follow the quantiles of the cell's labels. Lengths with the suffix px are pixels
of the cell's pictures of 2448x2048.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.gate.box_overlap import Box, iou
from sticker_uq.scene import Rng
from sticker_uq_lab.rendering import scene_spec, sticker_sampling
from sticker_uq_lab.rendering.emblems import logo_mask, new_logo
from sticker_uq_lab.rendering.laptops import Rect, deck_layout
from sticker_uq_lab.rendering.scene_spec import FixtureSpec, LaptopSpec, LogoSpec, Point, ThingSpec
from sticker_uq_lab.rendering.stickers import paint_sticker
from sticker_uq_lab.rendering.things import SIZES

MOST_STICKERS = 20
WIDTH, HEIGHT = 2448, 2048
"""The cell's pictures, px."""
_LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_TRIES = 36
_DRAFTS = 10

Points = npt.NDArray[np.float64]
Size = tuple[float, float]


@dataclass(frozen=True)
class _View:
    """What the stickers of a view look like: values at `_LEVELS`."""

    shorter: tuple[float, ...]
    aspect: tuple[float, ...]
    fill: tuple[float, ...]
    gap: tuple[float, ...]  # to the nearest object, of those that touch none
    touching: float  # probability of being put at another one
    overlap: float  # largest IoU with another one
    longest: float  # longer side


_TOP = _View(
    shorter=(64, 70, 88, 98, 118, 166, 200),
    aspect=(1.0, 1.01, 1.03, 1.12, 1.22, 1.8, 2.4),
    fill=(0.35, 0.4, 0.52, 0.66, 0.71, 0.77, 0.85),
    gap=(12, 60, 180, 300, 420, 520, 600),
    touching=0.14,
    overlap=0.43,
    longest=410,
)
_OPEN = _View(
    shorter=(46, 53, 72, 84, 103, 143, 170),
    aspect=(1.0, 1.01, 1.04, 1.19, 1.33, 2.3, 3.2),
    fill=(0.48, 0.52, 0.66, 0.75, 0.88, 0.97, 1.0),
    gap=(11, 18, 60, 250, 600, 900, 1100),
    touching=0.17,
    overlap=0.1,
    longest=180,
)


def _draw(rng: Rng, values: tuple[float, ...]) -> float:
    return float(np.interp(rng.random(), _LEVELS, values))


@dataclass
class StudyFrame:
    """Where the laptop lies in the cell's picture."""

    matrix: npt.NDArray[np.float64]  # laptop units to px
    scale: float  # px per laptop unit
    angle: float

    def units(self, x: float, y: float) -> Point:
        u, v, w = np.linalg.solve(self.matrix, np.array([x, y, 1.0]))
        return float(u / w), float(v / w)

    def px(self, x: float, y: float) -> Point:
        u, v, w = self.matrix @ np.array([x, y, 1.0])
        return float(u / w), float(v / w)


def study_laptop(rng: Rng, laptop: LaptopSpec) -> LaptopSpec:
    """`laptop` as a closed lid or opened flat, half and half, with the fixtures of its view."""
    if rng.random() < 0.5:
        lid = replace(laptop, view="lid", depth=rng.uniform(660, 740))
        return replace(lid, fixtures=_lid_fixtures(rng, lid))
    flat = replace(laptop, view="flat", depth=rng.uniform(1330, 1430))
    return replace(flat, fixtures=_flat_fixtures(rng, flat))


def _lid_fixtures(rng: Rng, laptop: LaptopSpec) -> tuple[FixtureSpec, ...]:
    """Nothing, or all that is on an underside: feet, screws, vents, prints."""
    if rng.random() > 0.2:
        return ()
    depth, fixtures = laptop.depth, []
    for x, y in ((80, 60), (920, 60), (80, depth - 60), (920, depth - 60)):
        fixtures.append(_fixture(rng, "foot", (x, y), (14, 40)))
        fixtures.append(_fixture(rng, "screw", (x + rng.uniform(-50, 50), y + rng.uniform(20, 60)), (6, 10)))
    for _ in range(rng.integers(1, 4)):
        spot = (rng.uniform(200, 800), rng.uniform(80, depth - 80))
        fixtures.append(_fixture(rng, "vent", spot, (50, 140)))
    screw = ("screw", (6, 10))
    for kind, size in (("certification", (40, 110)), ("symbols", (20, 60)), screw, screw):
        spot = (rng.uniform(150, 850), rng.uniform(80, depth - 80))
        fixtures.append(_fixture(rng, kind, spot, size))
    return tuple(fixtures)


def _flat_fixtures(rng: Rng, laptop: LaptopSpec) -> tuple[FixtureSpec, ...]:
    half, fixtures = laptop.depth / 2, [_fixture(rng, "camera", (500.0, 18.0), (5, 8))]
    for x in (90.0, 910.0):
        if rng.random() < 0.5:
            fixtures.append(_fixture(rng, "screw", (x, half - 34), (5, 8)))
    if rng.random() < 0.6:
        spot = (rng.uniform(150, 850), half * rng.uniform(1.06, 1.09))
        fixtures.append(_fixture(rng, "lamps", spot, (20, 60)))
    if rng.random() < 0.5:
        spot = (rng.choice((60.0, 940.0)), laptop.depth - 18)
        fixtures.append(_fixture(rng, "symbols", spot, (18, 45)))
    if rng.random() < 0.3:
        fixtures.append(_fixture(rng, "vent", (rng.uniform(300, 700), half * 1.08), (60, 150)))
    for y in (half * 1.2, half * 1.35, half * 1.5):
        if rng.random() < 0.25:
            fixtures.append(_fixture(rng, "port", (float(rng.choice((14.0, 986.0))), y), (12, 22), 90))
    if rng.random() < 0.15:
        spot = (rng.choice((120.0, 880.0)), laptop.depth - 60)
        fixtures.append(_fixture(rng, "certification", spot, (40, 80)))
    return tuple(fixtures)


def _fixture(rng: Rng, kind: str, centre: Point, size: Size, angle: float = 0) -> FixtureSpec:
    spot = (float(centre[0]), float(centre[1]))
    return FixtureSpec(kind, spot, rng.uniform(*size), angle, int(rng.integers(2**31)))


def study_pose(rng: Rng, laptop: LaptopSpec) -> tuple[scene_spec.PoseSpec, StudyFrame]:
    if laptop.view == "lid":
        angle = rng.uniform(0, 360)
        scale = rng.uniform(1.12, 1.5)
        middle = (1230 + rng.uniform(-330, 330), 1050 + rng.uniform(-90, 90))
    else:
        angle = float((-90 if rng.random() < 0.63 else 90) + np.clip(rng.normal(0, 3.5), -15, 15))
        scale = rng.uniform(1.38, 1.56)
        middle = (1224 + rng.uniform(-40, 40), 1030 + rng.uniform(-50, 50))
    turn = math.radians(angle)
    c, s = math.cos(turn), math.sin(turn)
    tilt = rng.normal(0, 2.5e-5, 2).clip(-5e-5, 5e-5)
    centred = np.array([[1, 0, -500], [0, 1, -laptop.depth / 2], [0, 0, 1]], np.float64)
    turned = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    tilted = np.array([[1, 0, 0], [0, 1, 0], [*tilt, 1]])
    matrix = np.array([[scale, 0, middle[0]], [0, scale, middle[1]], [0, 0, 1]]) @ tilted @ turned @ centred
    to_frame = np.array(
        [[1 / WIDTH, 0, 0], [0, 1 / WIDTH, scene_spec.FRAME_HEIGHT / 2 - HEIGHT / 2 / WIDTH], [0, 0, 1]]
    )
    homography = tuple(float(value) for value in (to_frame @ matrix).ravel())
    return scene_spec.PoseSpec(homography, scale * 1000 / WIDTH, angle), StudyFrame(matrix, scale, angle)


@lru_cache(maxsize=4096)
def _sticker_outline(shape: str, print_: str, motif: str, aspect: float) -> Points:
    """Corners (N,2) of the convex hull of a sticker whose longer side is 1, around its middle."""
    kind = sticker_sampling.StickerKind(print_, (shape,), (motif,), (aspect, aspect), (1.0, 1.0), (0.0, 0.0))
    colours = ((0, 0, 0), (90, 90, 90), (255, 255, 255))
    draft = sticker_sampling.new_sticker(np.random.default_rng(0), 1, kind, 100.0, aspect, colours, wear=0.0)
    draft = replace(draft, wear=0.0, faded=0.0, peel=0.0, border=0.0)
    return _hull(paint_sticker(draft, 1.0)[1] > 127) / 100


@lru_cache(maxsize=256)
def _logo_outline(brand: int, layout: str) -> Points:
    """Corners (N,2) of the convex hull of a logo whose longer side is 1, around its middle."""
    mask = logo_mask(brand, layout)
    return _hull(mask > 110) / max(mask.shape)


def _hull(covered: npt.NDArray[np.bool_]) -> Points:
    ys, xs = np.nonzero(covered)
    points = np.stack((xs + 0.5 - covered.shape[1] / 2, ys + 0.5 - covered.shape[0] / 2), axis=1)
    return cv2.convexHull(points.astype(np.float32))[:, 0].astype(np.float64)


def _extent(outline: Points, angle: float) -> tuple[float, float, float, Points]:
    """Width, height, filled share and middle of the upright box around an outline turned by `angle` degrees."""
    turn = math.radians(angle)
    c, s = math.cos(turn), math.sin(turn)
    points = outline @ np.array([[c, s], [-s, c]])
    low, high = points.min(axis=0), points.max(axis=0)
    width, height = (float(side) for side in high - low)
    filled = cv2.contourArea(points.astype(np.float32)) / (width * height)
    return width, height, filled, (low + high) / 2


def _misfit(width: float, height: float, fill: float, aspect: float, wanted_fill: float) -> float:
    return 2 * abs(math.log(max(width, height) / min(width, height) / aspect)) + abs(fill - wanted_fill) * 2.5


@dataclass(frozen=True)
class _Draft:
    kind: sticker_sampling.StickerKind
    motif: str
    shape: str
    aspect: float
    angle: float

    @property
    def outline(self) -> Points:
        motif = self.motif if self.shape == "diecut" else self.kind.motifs[0]
        return _sticker_outline(self.shape, self.kind.print, motif, self.aspect)


def _sticker_draft(rng: Rng, on_lid: bool, frame: StudyFrame, strip: bool) -> _Draft:
    if strip:
        kind = next(kind for kind in sticker_sampling.STICKER_KINDS if kind.print == "words")
        aspect = rng.uniform(3.6, 6.4)
        shape = str(rng.choice(("rect", "rounded")))
        return _Draft(
            kind, str(rng.choice(kind.motifs)), shape, aspect, float(rng.choice((0, 90))) + rng.normal(0, 2.5)
        )
    if not on_lid and rng.random() < 0.4:
        kind = sticker_sampling.BADGES
    else:
        weights = np.array([kind.weights[not on_lid] for kind in sticker_sampling.STICKER_KINDS])
        kind = sticker_sampling.STICKER_KINDS[
            int(rng.choice(len(sticker_sampling.STICKER_KINDS), p=weights / weights.sum()))
        ]
    # Rounded, so that outlines are found again.
    aspect = round(rng.uniform(*kind.aspects) * 8) / 8
    turn = rng.uniform(0, 360) if on_lid else frame.angle + 90 * int(rng.integers(4)) + rng.normal(0, 9)
    return _Draft(kind, str(rng.choice(kind.motifs)), str(rng.choice(kind.shapes)), aspect, turn)


def study_logos(rng: Rng, laptop: LaptopSpec, frame: StudyFrame) -> tuple[LogoSpec, ...]:
    """One or two logos on a lid; text marks and mostly a slanted or round one on a laptop opened flat."""
    if laptop.view == "lid":
        count = 1 if rng.random() < 0.53 else 2
        return tuple(_lid_logo(rng, index + 1, laptop, frame) for index in range(count))
    half = laptop.depth / 2
    ends = [100 + rng.uniform(0, 90), 900 - rng.uniform(0, 90)]
    if rng.random() < 0.3:
        ends[rng.integers(2)] = 500 + rng.uniform(-40, 40)
    beside = (half - rng.uniform(28, 44), half * rng.uniform(1.045, 1.085))
    spots = [(float(end), float(rng.choice(beside))) for end in ends]
    logos = [_text_mark(rng, index + 1, laptop, frame, spot) for index, spot in enumerate(spots)]
    if rng.random() < 0.6:
        logos.append(_slant(rng, 3, laptop, frame))
    if rng.random() < 0.35:
        logos.append(_round_mark(rng, len(logos) + 1, laptop, frame))
    return tuple(logos)


def _study_logo(
    rng: Rng,
    identity: int,
    laptop: LaptopSpec,
    frame: StudyFrame,
    centre: Point,
    layout: str,
    angle: float,
    shorter: float,
    longer: float = math.inf,
) -> LogoSpec:
    """A logo at `centre`, laptop units, turned by `angle` degrees in the picture, whose box there has that side, px."""
    outline = _logo_outline(laptop.brand, layout)
    width, height, _, _ = _extent(outline, angle)
    length = min(shorter / min(width, height), longer / max(width, height)) / frame.scale
    rows, columns = logo_mask(laptop.brand, layout).shape
    surface = laptop.colour if laptop.view == "lid" else laptop.deck_colour
    if laptop.view == "flat" and centre[1] < laptop.depth / 2:
        surface = (26, 24, 24)
    size = length * columns / max(rows, columns), length * rows / max(rows, columns)
    return new_logo(rng, identity, laptop.brand, layout, centre, size, surface, angle - frame.angle)


def _lid_logo(rng: Rng, identity: int, laptop: LaptopSpec, frame: StudyFrame) -> LogoSpec:
    wanted = _draw(rng, (1.0, 1.02, 1.04, 1.4, 1.65, 2.9, 3.4))
    fill = _draw(rng, (0.25, 0.31, 0.46, 0.52, 0.73, 0.79, 0.85))
    best, least = ("emblem", 0.0), math.inf
    for _ in range(_DRAFTS):
        layout = str(rng.choice(("emblem", "emblem", "word", "stacked", "row")))
        angle = frame.angle + float(rng.choice((0.0, 180.0, -37.0, 37.0, 53.0))) + rng.normal(0, 3)
        misfit = _misfit(*_extent(_logo_outline(laptop.brand, layout), angle)[:3], wanted, fill)
        if misfit < least:
            best, least = (layout, angle), misfit
    shorter = _draw(rng, (54, 61, 82, 116, 128, 142, 150))
    if rng.random() < 0.25:
        centre = (500.0, laptop.depth / 2)
    else:
        side = float(rng.choice((110.0, 890.0)) + rng.uniform(-30, 90))
        centre = (side, laptop.depth * rng.uniform(0.1, 0.9))
    return _study_logo(rng, identity, laptop, frame, centre, *best, shorter, 215)


def _text_mark(rng: Rng, identity: int, laptop: LaptopSpec, frame: StudyFrame, centre: Point) -> LogoSpec:
    angle = frame.angle + float(rng.choice((0.0, 180.0)))
    shorter = _draw(rng, (18, 20, 23, 28, 30, 38, 44))
    longer = _draw(rng, (44, 48, 78, 88, 96, 120, 140))
    logo = _study_logo(rng, identity, laptop, frame, centre, "word", angle, shorter, longer)
    # Narrow or wide type of the same height.
    width = _draw(rng, (46, 50, 80, 89, 97, 118, 130)) / frame.scale
    return replace(logo, width=logo.width * float(np.clip(width / logo.width, 0.55, 1.8)))


def _slant(rng: Rng, identity: int, laptop: LaptopSpec, frame: StudyFrame) -> LogoSpec:
    parts, turn = deck_layout(laptop), float(rng.choice((-42.0, 42.0)) + rng.normal(0, 4))
    palm = parts.palm_left if rng.random() < 0.5 else parts.palm_right
    if rng.random() < 0.85:
        outer = palm[0] + 70 if palm is parts.palm_left else palm[2] - 70
        centre = (outer + rng.uniform(-20, 20), palm[3] - rng.uniform(50, 90))
    else:
        centre = (float(rng.choice((110.0, 890.0))), laptop.depth / 2 * rng.uniform(0.86, 0.93))
    shorter = rng.uniform(95, 138)
    best = min(
        ("word", "row", "stacked"),
        key=lambda layout: abs(_extent(_logo_outline(laptop.brand, layout), turn)[2] - 0.5),
    )
    return _study_logo(rng, identity, laptop, frame, centre, best, frame.angle + turn, shorter, 175)


def _round_mark(rng: Rng, identity: int, laptop: LaptopSpec, frame: StudyFrame) -> LogoSpec:
    parts = deck_layout(laptop)
    if rng.random() < 0.5:
        centre = (rng.uniform(150, 850), parts.keyboard[1] - rng.uniform(28, 40))
    else:
        centre = (500 + rng.uniform(-30, 30), laptop.depth / 2 - rng.uniform(60, 120))
    shorter = rng.uniform(44, 58)
    return _study_logo(rng, identity, laptop, frame, centre, "emblem", frame.angle, shorter, 66)


def logo_box(laptop: LaptopSpec, frame: StudyFrame, logo: LogoSpec) -> Box:
    outline = _logo_outline(logo.brand, logo.layout) * max(logo.width, logo.height)
    if logo.width >= logo.height:
        rows, columns = logo_mask(logo.brand, logo.layout).shape
        outline = outline * np.array([1.0, logo.height / logo.width * columns / rows])
    width, height, _, middle = _extent(outline * frame.scale, logo.angle + frame.angle)
    x, y = frame.px(*logo.centre) + middle
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def sticker_count(rng: Rng, laptop: LaptopSpec) -> int:
    if laptop.view == "flat":
        return round(_draw(rng, (2, 2, 3, 4.5, 6, 8, 9)))
    return MOST_STICKERS if rng.random() < 0.06 else round(_draw(rng, (1, 1, 3, 5, 7, 9, 11)))


def study_stickers(
    rng: Rng, laptop: LaptopSpec, frame: StudyFrame, logos: tuple[LogoSpec, ...], count: int, torn: bool
) -> tuple[scene_spec.StickerSpec, ...]:
    """`count` stickers with ids that follow the logos'."""
    view = _TOP if laptop.view == "lid" else _OPEN
    boxes = [logo_box(laptop, frame, logo) for logo in logos]
    stickers = []
    for index in range(count):
        on_lid = laptop.view == "lid"
        strip = on_lid and rng.random() < 0.045
        aspect, fill = _draw(rng, view.aspect), _draw(rng, view.fill)
        drafts = [_sticker_draft(rng, on_lid, frame, strip) for _ in range(1 if strip else _DRAFTS)]
        extents = [_extent(draft.outline, draft.angle) for draft in drafts]
        chosen = int(np.argmin([_misfit(*extent[:3], aspect, fill) for extent in extents]))
        draft, (width, height, _, middle) = drafts[chosen], extents[chosen]
        shorter = rng.uniform(62, 82) if strip else _draw(rng, view.shorter)
        length = min(shorter / min(width, height), view.longest / max(width, height))
        spot = _spot(rng, view, laptop, frame, boxes, len(logos), (width * length, height * length))
        centre = frame.units(*(np.asarray(spot) - middle * length))
        badge = draft.kind is sticker_sampling.BADGES
        colours = (
            sticker_sampling.BADGE_COLOURS[rng.integers(len(sticker_sampling.BADGE_COLOURS))]
            if badge
            else sticker_sampling.pick_colours(rng)
        )
        fixed = replace(draft.kind, shapes=(draft.shape,), motifs=(draft.motif,))
        number, longer = len(logos) + index + 1, length / frame.scale
        sticker = sticker_sampling.new_sticker(rng, number, fixed, longer, draft.aspect, colours, wear=0.6)
        if torn:
            sticker = replace(sticker, wear=rng.uniform(0.4, 1), peel=rng.uniform(0, 0.33))
        stickers.append(replace(sticker, centre=centre, angle=draft.angle - frame.angle))
        half_x, half_y = width * length / 2, height * length / 2
        boxes.append((spot[0] - half_x, spot[1] - half_y, spot[0] + half_x, spot[1] + half_y))
    return tuple(stickers)


def _gap(box: Box, other: Box) -> float:
    across = max(other[0] - box[2], box[0] - other[2], 0.0)
    down = max(other[1] - box[3], box[1] - other[3], 0.0)
    return math.hypot(across, down)


def _spot(
    rng: Rng, view: _View, laptop: LaptopSpec, frame: StudyFrame, boxes: list[Box], logos: int, size: Size
) -> Point:
    """The middle of a sticker's box of `size`: at another object, or about as far from all as the view wants."""
    touches = bool(boxes) and rng.random() < view.touching
    wanted = _draw(rng, view.gap)
    best, least = (0.0, 0.0), math.inf
    for _ in range(_TRIES):
        if touches:
            near = boxes[rng.integers(len(boxes))]
            if view is _OPEN and len(boxes) > logos:
                near = boxes[rng.integers(logos, len(boxes))]
            spot = _beside(rng, near, size, view.overlap)
        else:
            zone = _zone(rng, laptop)
            spot = frame.px(rng.uniform(zone[0], zone[2]), rng.uniform(zone[1], zone[3]))
        box = (spot[0] - size[0] / 2, spot[1] - size[1] / 2, spot[0] + size[0] / 2, spot[1] + size[1] / 2)
        gap = min((_gap(box, other) for other in boxes), default=wanted)
        overlap = max((iou(box, other) for other in boxes), default=0.0)
        excess = max(0.0, overlap - (view.overlap if touches else 0.0))
        cost = 4000 * excess + 20 * _outside(laptop, frame, box) + (gap if touches else abs(gap - wanted))
        if not touches and gap < 11:
            cost += 300
        if cost < least:
            best, least = spot, cost
    return best


def _beside(rng: Rng, near: Box, size: Size, overlap: float) -> Point:
    x, y = (near[0] + near[2]) / 2, (near[1] + near[3]) / 2
    reach_x, reach_y = (near[2] - near[0] + size[0]) / 2, (near[3] - near[1] + size[1]) / 2
    # Six in ten overlap; the rest stands a few pixels off.
    step = -rng.uniform(0.02, 1.5 * overlap) * min(*size) if rng.random() < 0.6 else rng.uniform(0, 10)
    side, along = float(rng.choice((-1, 1))), rng.uniform(-0.7, 0.7)
    if rng.random() < 0.5:
        return x + side * (reach_x + step), y + along * reach_y
    return x + along * reach_x, y + side * (reach_y + step)


def _outside(laptop: LaptopSpec, frame: StudyFrame, box: Box) -> float:
    """How far the middle of a box is beyond where stickers can be, px."""
    x, y = frame.units((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    margin = min(box[2] - box[0], box[3] - box[1]) / 2 / frame.scale
    top = laptop.depth * 0.8 if laptop.view == "flat" else 0.0
    space = 35.0 if laptop.view == "flat" else 0.0
    beyond = (margin - x, x - 1000 + margin, top + margin - y, y - laptop.depth + margin + space)
    return max(0.0, *beyond) * frame.scale


def _zone(rng: Rng, laptop: LaptopSpec) -> Rect:
    if laptop.view == "lid":
        return (20.0, 20.0, 980.0, laptop.depth - 20.0)
    parts, chosen = deck_layout(laptop), rng.random()
    keyboard, screen = (40.0, parts.keyboard[1], 960.0, parts.keyboard[3]), laptop.depth / 2 - 60.0
    shares = ((0.42, parts.palm_left), (0.76, parts.palm_right), (0.88, parts.touchpad), (0.95, keyboard))
    return next((zone for below, zone in shares if chosen < below), (60.0, 40.0, 940.0, screen))


def study_things(
    rng: Rng, laptop: LaptopSpec, frame: StudyFrame
) -> tuple[tuple[ThingSpec, ...], tuple[scene_spec.ResidueSpec, ...]]:
    """What lies about, hands and grippers, and residue on the laptop of some scenes."""
    things: list[ThingSpec] = []
    kinds = tuple(kind for kind in SIZES if kind not in ("hand", "gripper"))
    for _ in range(int(rng.choice((0, 0, 0, 1, 2, 3, 5)))):
        kind = str(rng.choice(kinds))
        # Two in three beside the laptop: a corner or border of the picture.
        if rng.random() < 0.65:
            along, away = rng.uniform(0, 1), rng.uniform(0.0, 0.12)
            if rng.random() < 0.5:
                x, y = along, (away if rng.random() < 0.5 else 1 - away) * scene_spec.FRAME_HEIGHT
            else:
                x, y = away if rng.random() < 0.5 else 1 - away, along * scene_spec.FRAME_HEIGHT
        else:
            x, y = rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8) * scene_spec.FRAME_HEIGHT
        things.append(_thing(rng, kind, (float(x), float(y))))
    for kind in ("hand", "gripper"):
        if rng.random() < 0.07:
            things.append(_thing(rng, kind, (rng.uniform(0.25, 0.75), rng.uniform(0.2, 0.55))))
    residues = []
    if rng.random() < 0.3:
        for _ in range(rng.integers(1, 5)):
            zone, side = _zone(rng, laptop), _draw(rng, _TOP.shorter) / frame.scale
            size = (side * rng.uniform(0.7, 1.8), side * rng.uniform(0.5, 1.2))
            centre = (rng.uniform(zone[0], zone[2]), rng.uniform(zone[1], zone[3]))
            angle = rng.uniform(0, 360)
            residues.append(scene_spec.ResidueSpec(centre, *size, angle, int(rng.integers(2**31))))
    return tuple(things), tuple(residues)


def _thing(rng: Rng, kind: str, centre: Point) -> ThingSpec:
    return ThingSpec(kind, centre, rng.uniform(*SIZES[kind]), rng.uniform(0, 360), int(rng.integers(2**31)))


def study_light(rng: Rng, light: scene_spec.LightSpec) -> scene_spec.LightSpec:
    """`light`, in one scene of eight with glare."""
    if rng.random() > 0.12:
        return light
    kind = str(rng.choice(("lamp", "window", "streak")))
    middle = (rng.uniform(0.25, 0.75), rng.uniform(0.2, 0.55))
    return replace(light, specular=kind, specular_centre=middle, specular_strength=rng.uniform(150, 420))


def study_camera(rng: Rng, camera: scene_spec.CameraSpec) -> scene_spec.CameraSpec:
    """`camera`, sharper than one for large stickers, and in one scene of eight with strong blur or noise."""
    camera = replace(camera, blur=camera.blur * 0.6, motion=camera.motion * 0.5)
    chosen = rng.random()
    if chosen < 0.05:
        return replace(camera, blur=rng.uniform(0.0013, 0.003))
    if chosen < 0.08:
        return replace(camera, motion=rng.uniform(0.004, 0.01))
    if chosen < 0.13:
        return replace(camera, noise=rng.uniform(7, 18))
    return camera
