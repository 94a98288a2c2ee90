# SPDX-License-Identifier: Apache-2.0
"""The kinds of sticker, and where on a laptop they are put."""

from dataclasses import dataclass, replace

import cv2
import numpy as np

from sticker_uq.scene import Rng
from sticker_uq_lab.rendering.figures import FIGURES
from sticker_uq_lab.rendering.laptops import BRANDS, Rect, deck_layout
from sticker_uq_lab.rendering.scene_spec import Colour, LaptopSpec, LogoSpec, Point, PoseSpec, StickerSpec

Bounds = tuple[float, float]


@dataclass(frozen=True)
class StickerKind:
    """A family of stickers; `aspects` bounds width over height, `weights`: how often on a lid, on a deck."""

    print: str
    shapes: tuple[str, ...]
    motifs: tuple[str, ...]
    aspects: Bounds
    weights: Bounds
    border: Bounds


def _kind(
    print_: str, shapes: str, motifs: str, aspects: Bounds, weights: Bounds, border: Bounds = (0.0, 0.06)
) -> StickerKind:
    return StickerKind(print_, tuple(shapes.split()), tuple(motifs.split(",")), aspects, weights, border)


_FIGURES = ",".join(FIGURES)
_WORDS_WIDE = (
    "NEON OWLS,LOUD FOXES,SKATE OR NAP,MOON/PIRATES,TINY ROBOTS,GO SLOW,BEEP BOOP,RAW TOAST,I BRAKE/FOR BUGS,STAY WEIRD,"
    "DEEP SEA/RADIO,NORTH PIER,404 SLEEP/NOT FOUND,VELVET STORM"
)
_WORDS_ROUND = "WILD/CAMP,SUPER/COFFEE/CLUB,OPEN/DATA,BIKE/CREW,JAZZ/CATS,RUN/2031,YES,WOW!,100%"
_LABELS = "PROPERTY OF LAB 4,ASSET TAG,ASSET 0X,INVENTORY,IT DEPT"
_MAKERS = ",".join(str(index) for index in range(len(BRANDS)))
STICKER_KINDS = (
    _kind("figure", "diecut", _FIGURES, (1.0, 1.0), (5.0, 2.6)),
    _kind("figure", "circle rounded hexagon", _FIGURES, (1.0, 1.0), (3.0, 1.5), (0.0, 0.07)),
    _kind("words", "rect rounded oval", _WORDS_WIDE, (1.7, 2.8), (3.0, 1.4)),
    _kind("words", "circle burst hexagon", _WORDS_ROUND, (1.0, 1.0), (2.0, 1.0)),
    _kind("label", "rect rounded", _LABELS, (1.7, 2.3), (1.6, 1.6), (0.0, 0.02)),
    _kind("shipping", "rect", "FRAGILE,RETURNS,SERVICE,TESTED OK", (1.2, 1.6), (1.0, 0.6), (0.0, 0.0)),
    _kind("hello", "rounded", "Ada,Max,Kim,Robin,Sam", (1.3, 1.5), (0.8, 0.3), (0.0, 0.03)),
    _kind("qr", "rect rounded", "SCAN ME", (0.82, 1.0), (1.0, 0.8), (0.0, 0.0)),
    _kind("flag", "rect rounded", "bands,columns,cross,stripes", (1.45, 1.6), (1.2, 0.7)),
    _kind(
        "pattern",
        "circle hexagon shield rounded",
        "sunset,mountains,rings,stripes",
        (1.0, 1.0),
        (2.2, 1.0),
        (0.03, 0.08),
    ),
    _kind("pattern", "star heart rounded", "dots,stripes,checker", (1.0, 1.0), (1.4, 0.6), (0.04, 0.1)),
    _kind("warning", "triangle", "bolt,mark", (1.12, 1.16), (0.7, 0.4), (0.0, 0.0)),
    _kind("warning", "rect", "CAUTION,WARNING,DO NOT FEED,HIGH VOLTAGE", (2.2, 2.8), (0.7, 0.3)),
    _kind("decal", "circle rounded", _MAKERS, (1.0, 1.0), (0.35, 0.2)),
)
_BADGES = "corix/i5,corix/i7,corix/i9,RYVEN/7,RYVEN/5,NVEX/RTR,quantel/X2,ENERGIX/A+"
BADGES = _kind("badge", "rect rounded", _BADGES, (0.78, 1.3), (0.0, 1.0), (0.0, 0.035))

BADGE_COLOURS: tuple[tuple[Colour, Colour, Colour], ...] = (
    ((110, 50, 10), (210, 140, 40), (255, 255, 255)),
    ((38, 34, 34), (60, 60, 64), (255, 255, 255)),
    ((40, 60, 230), (60, 120, 245), (255, 255, 255)),
    ((30, 90, 40), (60, 180, 110), (255, 255, 255)),
    ((196, 198, 200), (232, 232, 232), (60, 60, 60)),
    ((90, 30, 90), (190, 90, 170), (255, 255, 255)),
)

_VIVID: tuple[Colour, ...] = (
    (60, 60, 225), (40, 130, 245), (60, 205, 250), (90, 175, 70), (170, 160, 40), (205, 120, 40),
    (160, 70, 130), (150, 110, 240), (60, 30, 20), (235, 236, 238), (120, 70, 30), (80, 90, 160),
    (200, 205, 140), (40, 36, 36),
)  # fmt: skip


def pick_colours(rng: Rng) -> tuple[Colour, Colour, Colour]:
    first, second, third = rng.choice(len(_VIVID), 3, replace=False)
    return _VIVID[int(first)], _VIVID[int(second)], _VIVID[int(third)]


_Box = tuple[Point, tuple[float, float], float]
_TRIES = 40


def place_stickers(
    rng: Rng, laptop: LaptopSpec, pose: PoseSpec, logos: tuple[LogoSpec, ...], count: int
) -> tuple[StickerSpec, ...]:
    """`count` stickers for a laptop, with ids following the logos'."""
    placed: list[StickerSpec] = []
    badges = 0
    if laptop.view == "deck" and rng.random() < 0.75:
        badges = min(count, int(rng.integers(1, 4)))
    column = _badge_column(rng, laptop, logos)
    for index in range(count):
        identity = len(logos) + index + 1
        if index < badges:
            draft = _badge(rng, identity, pose)
            placed.append(_place_badge(rng, draft, column, placed, logos))
        else:
            placed.append(_place(rng, _draft(rng, identity, laptop, pose), laptop, placed, logos))
    return tuple(placed)


def _badge_column(rng: Rng, laptop: LaptopSpec, logos: tuple[LogoSpec, ...]) -> Rect:
    """The side of the touchpad for badges: more often the left one, but not the one with a logo."""
    parts = deck_layout(laptop)
    sides = [parts.palm_left, parts.palm_right] if rng.random() < 0.7 else [parts.palm_right, parts.palm_left]

    def free(side: Rect) -> bool:
        return not any(side[0] < x < side[2] and side[1] < y < side[3] for x, y in (o.centre for o in logos))

    return next(filter(free, sides), sides[0])


def _badge(rng: Rng, identity: int, pose: PoseSpec) -> StickerSpec:
    aspect = float(rng.choice((0.78, 1.0, 1.3)))
    longer = rng.uniform(0.062, 0.085) / pose.width * 1000
    colours = BADGE_COLOURS[rng.integers(len(BADGE_COLOURS))]
    return new_sticker(rng, identity, BADGES, longer, aspect, colours, wear=0.5)


def _draft(rng: Rng, identity: int, laptop: LaptopSpec, pose: PoseSpec) -> StickerSpec:
    on_deck = laptop.view == "deck"
    weights = np.array([kind.weights[on_deck] for kind in STICKER_KINDS])
    kind = STICKER_KINDS[int(rng.choice(len(STICKER_KINDS), p=weights / weights.sum()))]
    aspect = rng.uniform(*kind.aspects)
    # Wide stickers are longer, so that their words stay legible.
    longer = rng.uniform(0.085, 0.145) if on_deck else rng.uniform(0.095, 0.2)
    longer *= min(1.35, max(1.0, aspect) ** 0.4)
    return new_sticker(rng, identity, kind, longer / pose.width * 1000, aspect, pick_colours(rng), wear=1.0)


def new_sticker(
    rng: Rng,
    identity: int,
    kind: StickerKind,
    longer: float,
    aspect: float,
    colours: tuple[Colour, ...],
    wear: float,
) -> StickerSpec:
    """A sticker of a kind whose longer side has that length, laptop units, not placed yet; `wear` scales how worn it may be."""
    worn = rng.random() < 0.35
    peeled = rng.random() < 0.18 * wear
    return StickerSpec(
        id=identity,
        shape=str(rng.choice(kind.shapes)),
        print=kind.print,
        motif=str(rng.choice(kind.motifs)),
        centre=(0.0, 0.0),
        width=longer * min(1.0, aspect),
        height=longer / max(1.0, aspect),
        angle=rng.normal(0, 14),
        colours=colours,
        border=rng.uniform(*kind.border) if rng.random() < 0.7 else 0.0,
        wear=rng.uniform(0.2, 1.0) * wear if worn else 0.0,
        faded=rng.uniform(0.1, 0.8) * wear if rng.random() < 0.25 else 0.0,
        peel=rng.uniform(0.1, 0.3) if peeled else 0.0,
        peel_angle=float(rng.choice((45, 135, 225, 315)) + rng.uniform(-15, 15)),
        gloss=rng.uniform(0.15, 0.85),
        seed=int(rng.integers(2**31)),
    )


def _box(sticker: StickerSpec) -> _Box:
    return sticker.centre, (sticker.width, sticker.height), sticker.angle


def _overlap_share(a: _Box, b: _Box) -> float:
    """Intersection of two turned rectangles as a share of the smaller."""
    kind, points = cv2.rotatedRectangleIntersection(a, b)
    if kind == cv2.INTERSECT_NONE or points is None or len(points) < 3:
        return 0.0
    area = cv2.contourArea(cv2.convexHull(np.asarray(points, np.float32)))
    return float(area / min(a[1][0] * a[1][1], b[1][0] * b[1][1]))


def _overlap_shares(box: _Box, placed: list[StickerSpec], logos: tuple[LogoSpec, ...]) -> tuple[float, float]:
    with_stickers = max((_overlap_share(box, _box(other)) for other in placed), default=0.0)
    with_logos = max(
        (_overlap_share(box, (logo.centre, (logo.width + 16, logo.height + 16), 0.0)) for logo in logos),
        default=0.0,
    )
    return with_stickers, with_logos


def _place_badge(
    rng: Rng, draft: StickerSpec, column: Rect, placed: list[StickerSpec], logos: tuple[LogoSpec, ...]
) -> StickerSpec:
    best, least = draft, np.inf
    for _ in range(_TRIES):
        half_x, half_y = draft.width / 2, draft.height / 2
        centre = (
            rng.uniform(column[0] + half_x, column[2] - half_x),
            rng.uniform(column[1] + half_y, column[3] - half_y),
        )
        candidate = replace(draft, centre=centre, angle=rng.normal(0, 2))
        with_stickers, with_logos = _overlap_shares(_box(candidate), placed, logos)
        if with_stickers + 3 * with_logos < least:
            best, least = candidate, with_stickers + 3 * with_logos
        if least == 0:
            break
    return best


def _place(
    rng: Rng, draft: StickerSpec, laptop: LaptopSpec, placed: list[StickerSpec], logos: tuple[LogoSpec, ...]
) -> StickerSpec:
    """Try positions until one is free; otherwise take the least crowded one."""
    habit = rng.random()
    may_cover_sticker = 0.35 if rng.random() < 0.25 else 0.0
    may_cover_logo = 0.3 if habit < 0.1 else 0.0
    over_edge = habit > 0.9
    best, least = draft, np.inf
    for _ in range(_TRIES):
        if habit < 0.1 and logos:
            centre = _near(rng, draft, logos[rng.integers(len(logos))], laptop)
        else:
            centre = _somewhere(rng, draft, laptop, over_edge)
        candidate = replace(draft, centre=centre)
        with_stickers, with_logos = _overlap_shares(_box(candidate), placed, logos)
        excess = max(0.0, with_stickers - may_cover_sticker) + 2 * max(0.0, with_logos - may_cover_logo)
        if excess < least:
            best, least = candidate, excess
        if least == 0:
            break
    return best


def _near(rng: Rng, draft: StickerSpec, logo: LogoSpec, laptop: LaptopSpec) -> Point:
    """A position beside a logo, sometimes touching it, with at least two thirds of the sticker on the laptop."""
    reach_x, reach_y = (draft.width + logo.width) / 2, (draft.height + logo.height) / 2
    away, along = rng.choice((-1, 1)) * rng.uniform(0.8, 1.1), rng.uniform(-0.5, 0.5)
    if rng.random() < 0.5:
        away, along = along, away
    x, y = logo.centre[0] + away * reach_x, logo.centre[1] + along * reach_y
    margin_x, margin_y = draft.width / 6, draft.height / 6
    x, y = np.clip(x, margin_x, 1000 - margin_x), np.clip(y, margin_y, laptop.depth - margin_y)
    return float(x), float(y)


def _somewhere(rng: Rng, draft: StickerSpec, laptop: LaptopSpec, over_edge: bool) -> Point:
    half_x, half_y = draft.width / 2, draft.height / 2
    zone = _zone(rng, laptop)
    if over_edge:
        # Up to two fifths of the sticker hang over one of the edges the zone shares with the laptop.
        x, y = rng.uniform(zone[0], zone[2]), rng.uniform(zone[1], zone[3])
        hang = rng.uniform(0.2, 0.9)
        edges = [("x", half_x * hang), ("x", 1000 - half_x * hang), ("y", laptop.depth - half_y * hang)]
        if laptop.view == "lid":
            edges.append(("y", half_y * hang))
        axis, value = edges[rng.integers(len(edges))]
        return (float(value), float(y)) if axis == "x" else (float(x), float(value))
    low_x, high_x = zone[0] + half_x, max(zone[0] + half_x + 1, zone[2] - half_x)
    low_y, high_y = zone[1] + half_y, max(zone[1] + half_y + 1, zone[3] - half_y)
    return rng.uniform(low_x, high_x), float(min(rng.uniform(low_y, high_y), laptop.depth - half_y))


def _zone(rng: Rng, laptop: LaptopSpec) -> Rect:
    if laptop.view == "lid":
        return (15.0, 15.0, 985.0, laptop.depth - 15.0)
    parts, chosen = deck_layout(laptop), rng.random()
    shares = ((0.42, parts.palm_left), (0.84, parts.palm_right), (0.9, parts.touchpad))
    return next((zone for below, zone in shares if chosen < below), parts.keyboard)
