# SPDX-License-Identifier: Apache-2.0
"""Pictures that show what was seen, how sure it is, and what was decided."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sticker_uq.evaluation import report_model
from sticker_uq.io.files import write_file
from sticker_uq.messages import LABELS, VERDICTS
from sticker_uq.scene import (
    FloatArray,
    InvalidInput,
    ObjectClass,
    ObjectVerdict,
    ObservedObject,
    Outcome,
    SceneAssessment,
    SceneDecision,
    Status,
    Verdict,
)

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]
Rect = tuple[int, int, int, int]

# Okabe and Ito's palette (Color Universal Design, 2008), red green blue: told apart with any kind of colour vision.
GREEN, BLUE, ORANGE, SKY, RED = (0, 158, 115), (0, 114, 178), (230, 159, 0), (86, 180, 233), (213, 94, 0)
VERDICT_COLOURS = {Verdict.REMOVE: GREEN, Verdict.KEEP: SKY, Verdict.ASK: ORANGE, Verdict.UNKNOWN: ORANGE}
CLASS_COLOURS = {ObjectClass.STICKER: GREEN, ObjectClass.LOGO: SKY, ObjectClass.BACKGROUND: ORANGE}
OUTCOME_COLOURS = {
    **{Outcome.WORK: GREEN, Outcome.CLEAN: SKY, Outcome.ASK: ORANGE},
    **{Outcome.BLOCKED: RED, Outcome.UNKNOWN: ORANGE},
}
_PAPER = (18, 20, 24, 225)
_INK = (245, 245, 245)


@dataclass(frozen=True)
class _Mark:
    box: FloatArray
    hulls: tuple[FloatArray, ...]
    colour: Colour
    dashed: bool
    title: str
    detail: str


def annotate(image: Picture, assessment: SceneAssessment, decision: SceneDecision | None = None) -> Picture:
    """A copy of `image` (uint8 (H, W, 3) BGR) with everything that `assessment` and `decision` say about it.

    Boxes are coloured by verdict (by class without a decision) and dashed where too few passes saw the object; the filled corners
    are the hulls of the box corners over the passes; the line on top tells the scene's outcome and DiL. Brackets in vermilion
    mark where something was seen that no box explains. Raises InvalidInput when the assessment is about an image of another size.
    """
    height, width = image.shape[:2]
    failed = assessment.status in (Status.FAILED, Status.UNKNOWN)
    if not failed and assessment.image_size != (width, height):
        raise InvalidInput(f"image of {width} x {height} px for an assessment of {assessment.image_size} px")
    scale = max(height / 720, 0.5)
    verdicts = {} if decision is None else {v.object.id: v for v in decision.verdicts}
    seen = (*assessment.objects, *assessment.unstable)
    marks = [_mark(one, verdicts.pop(one.id, None), assessment.passes) for one in seen]
    marks += [_mark(drawn.object, drawn, assessment.passes) for drawn in verdicts.values()]
    canvas = np.ascontiguousarray(image)[..., ::-1].copy()
    for mark in marks:
        _draw_hulls(canvas, mark)
    for mark in marks:
        _draw_box(canvas, mark, scale)
    for region in assessment.localization.unexplained if assessment.localization is not None else ():
        _draw_brackets(canvas, _rect(region.box), RED, scale)
        title = f"missed? {report_model.number(round(region.objectness, 2))}"
        what = f"possibly a missed object, {region.share:.0%} of BL"
        marks.append(_Mark(region.box, (), RED, True, title, what))
    picture = Image.fromarray(canvas)
    pen = ImageDraw.Draw(picture, "RGBA")
    taken = [_draw_banner(pen, assessment, decision, width, scale)]
    boxes = [_rect(mark.box) for mark in marks]
    for mark in sorted(marks, key=lambda m: (m.dashed, m.box[1])):
        taken.append(_draw_tag(pen, mark, (width, height), taken, boxes, scale))
    return np.ascontiguousarray(np.asarray(picture)[..., ::-1])


def _mark(observed: ObservedObject, verdict: ObjectVerdict | None, passes: int) -> _Mark:
    colour = CLASS_COLOURS[observed.label] if verdict is None else VERDICT_COLOURS[verdict.verdict]
    word = "" if verdict is None else f"{VERDICTS[verdict.verdict.name.lower()].upper()}  "
    seen = f"{observed.passes}/{passes}"
    score = report_model.number(round(observed.score, 2))
    if observed.score < max(observed.probabilities) and observed.close_up > observed.score:
        score += f", close-up {report_model.number(round(observed.close_up, 2))}"
    title = f"#{observed.id} {word}{LABELS[observed.label.name.lower()]} {score}  {seen}"
    if verdict is not None:
        detail = report_model.explain_verdict(verdict)
    elif observed.unstable:
        detail = "seen too seldom"
    else:
        detail = f"SE {report_model.number(observed.shannon_entropy)}  MI {report_model.number(observed.mutual_information)}"
    return _Mark(observed.box, observed.corner_hulls, colour, observed.unstable, title, detail)


def _draw_brackets(canvas: Picture, rect: Rect, colour: Colour, scale: float) -> None:
    """The four corners of a frame, so that what is inside stays in view."""
    x1, y1, x2, y2 = rect
    arm = max(min(x2 - x1, y2 - y1) // 3, round(6 * scale))
    thickness = max(round(2 * scale), 1)
    for x, dx in ((x1, arm), (x2, -arm)):
        for y, dy in ((y1, arm), (y2, -arm)):
            points = np.array([[x + dx, y], [x, y], [x, y + dy]], np.int32)
            cv2.polylines(canvas, [points], False, (18, 20, 24), thickness + 2)
            cv2.polylines(canvas, [points], False, colour, thickness)


def saliency_overlay(image: Picture, assessment: SceneAssessment) -> Picture:
    """A copy of `image` (uint8 (H, W, 3) BGR) under its objectness saliency, with contours and unexplained regions.

    Contours run where the saliency falls to half, a quarter and an eighth of its largest value; thin frames are the clustered
    objects, brackets the regions that no box explains. Raises InvalidInput when the assessment holds no saliency map of the
    image's size.
    """
    localization = assessment.localization
    saliency = localization.saliency if localization is not None else None
    if localization is None or saliency is None or saliency.shape != image.shape[:2]:
        shape = None if saliency is None else saliency.shape
        raise InvalidInput(f"saliency of shape {shape} for an image of shape {image.shape[:2]}")
    scale = max(image.shape[0] / 720, 0.5)
    top = float(saliency.max())
    share = saliency / top if top > 0.0 else np.zeros_like(saliency)
    heat = cv2.applyColorMap((share**0.5 * 255).astype(np.uint8), cv2.COLORMAP_VIRIDIS)
    weight = (0.75 * share**0.5)[..., None]
    canvas = np.round(image * (1.0 - weight) + heat * weight).astype(np.uint8)
    for level, thickness in ((0.125, 1), (0.25, 1), (0.5, 2)):
        contours, _ = cv2.findContours(
            (share >= level).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE
        )
        cv2.drawContours(canvas, contours, -1, (245, 245, 245), max(round(thickness * scale), 1), cv2.LINE_AA)
    canvas = canvas[..., ::-1].copy()
    for observed in assessment.objects:
        x1, y1, x2, y2 = _rect(observed.box)
        cv2.rectangle(canvas, (x1, y1), (x2, y2), CLASS_COLOURS[observed.label], max(round(scale), 1))
    for region in localization.unexplained:
        _draw_brackets(canvas, _rect(region.box), RED, scale)
    return np.ascontiguousarray(canvas[..., ::-1])


def _rect(box: FloatArray) -> Rect:
    x1, y1, x2, y2 = (round(float(v)) if math.isfinite(v) else 0 for v in box)
    return x1, y1, x2, y2


def _draw_hulls(canvas: Picture, mark: _Mark) -> None:
    polygons = [np.round(hull * 16).astype(np.int32) for hull in mark.hulls if len(hull) > 2]
    if not polygons:
        return
    layer = canvas.copy()
    cv2.fillPoly(layer, polygons, mark.colour, cv2.LINE_AA, shift=4)
    cv2.addWeighted(layer, 0.45, canvas, 0.55, 0.0, dst=canvas)
    cv2.polylines(canvas, polygons, True, mark.colour, 1, cv2.LINE_AA, shift=4)


def _draw_box(canvas: Picture, mark: _Mark, scale: float) -> None:
    x1, y1, x2, y2 = _rect(mark.box)
    thickness = max(round(2 * scale), 1)
    corners = [(x1, y1), (x2, y1), (x2, y2), (x1, y2), (x1, y1)]
    dash = round(9 * scale)
    for colour, wide in (((18, 20, 24), thickness + 2), (mark.colour, thickness)):
        for start, end in pairwise(corners):
            for a, b in _dashes(start, end, dash) if mark.dashed else [(start, end)]:
                cv2.line(canvas, a, b, colour, wide)


def _dashes(start: tuple[int, int], end: tuple[int, int], dash: int) -> Iterator[tuple[Any, Any]]:
    line = np.array([start, end], float)
    count = max(int(np.linalg.norm(line[1] - line[0]) // (2 * dash)), 1)
    for index in range(count):
        near, far = (
            line[0] + (line[1] - line[0]) * share for share in (index / count, (index + 0.55) / count)
        )
        yield tuple(near.round().astype(int).tolist()), tuple(far.round().astype(int).tolist())


def _font(size: float) -> Any:
    return ImageFont.load_default(max(round(size), 9))


def _light(colour: Colour) -> Colour:
    red, green, blue = (round(c + (255 - c) * 0.35) for c in colour)
    return red, green, blue


def _plain(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _draw_banner(
    pen: Any, assessment: SceneAssessment, decision: SceneDecision | None, width: int, scale: float
) -> Rect:
    if assessment.status is Status.FAILED:
        head, colour = "FAILED", RED
        parts = [assessment.status_text]
    else:
        head = "" if decision is None else decision.outcome.name
        colour = SKY if decision is None else OUTCOME_COLOURS[decision.outcome]
        parts = [] if decision is None else [report_model.outcome_words(decision)]
        parts += [] if decision is None else [report_model.short_reason(r) for r in decision.reasons]
        stickers = sum(o.label is ObjectClass.STICKER for o in assessment.objects)
        parts.append(f"{stickers} sticker{'s' * (stickers != 1)}, {len(assessment.objects) - stickers} other")
        if assessment.unstable:
            parts.append(f"{len(assessment.unstable)} seen too seldom")
        said = any(r.subject == "dil" for r in (decision.reasons if decision else ()))
        if assessment.localization is not None and not said:
            parts.append(f"DiL {report_model.number(assessment.localization.dil)}")
    font = _font(16 * scale)
    high, pad = round(28 * scale), round(10 * scale)
    pen.rectangle((0, 0, width, high), fill=_PAPER)
    pen.rectangle((0, 0, round(6 * scale), high), fill=(*colour, 255))
    x = float(pad + round(4 * scale))
    middle = high / 2
    if head:
        pen.text((x, middle), head, font=font, fill=_light(colour), anchor="lm")
        x += pen.textlength(head, font=font) + pad * 1.5
    text = _plain("   |   ".join(parts))
    while text and pen.textlength(text, font=font) > width - x - pad:
        text = text.removesuffix("...")[:-1] + "..." if len(text) > 4 else ""
    pen.text((x, middle), text, font=font, fill=_INK, anchor="lm")
    return (0, 0, width, high)


def _draw_tag(
    pen: Any, mark: _Mark, size: tuple[int, int], taken: list[Rect], boxes: list[Rect], scale: float
) -> Rect:
    """The label of one object, where it hides least; returns its place."""
    fonts = (_font(15 * scale), _font(13 * scale))
    lines = (_plain(mark.title), _plain(mark.detail)[:44])
    pad, bar = round(6 * scale), round(4 * scale)
    heights = [round(19 * scale), round(17 * scale)]
    wide = round(max(pen.textlength(t, font=f) for t, f in zip(lines, fonts, strict=True))) + 2 * pad + bar
    high = sum(heights) + pad
    x, y = _place(_rect(mark.box), (wide, high), size, taken, boxes, round(4 * scale))
    pen.rectangle((x, y, x + wide, y + high), fill=_PAPER)
    pen.rectangle((x, y, x + bar, y + high), fill=(*mark.colour, 255))
    first = y + pad / 2 + heights[0] / 2
    pen.text((x + bar + pad, first), lines[0], font=fonts[0], fill=_light(mark.colour), anchor="lm")
    second = y + pad / 2 + heights[0] + heights[1] / 2
    pen.text((x + bar + pad, second), lines[1], font=fonts[1], fill=_INK, anchor="lm")
    return (x, y, x + wide, y + high)


def _place(
    box: Rect, tag: tuple[int, int], size: tuple[int, int], taken: list[Rect], boxes: list[Rect], gap: int
) -> tuple[int, int]:
    """Top left corner of a tag near `box`, inside the picture, that covers other tags and objects least."""
    x1, y1, x2, y2 = box
    wide, high = tag
    candidates = [
        (x1, y1 - high - gap),
        (x1, y2 + gap),
        (x2 - wide, y1 - high - gap),
        (x2 - wide, y2 + gap),
        (x2 + gap, y1),
        (x1 - wide - gap, y1),
        (x2 + gap, y2 - high),
        (x1 - wide - gap, y2 - high),
        (x1 + gap, y1 + gap),
        (x1 + gap, y2 - high - gap),
    ]

    def cost(rank_and_place: tuple[int, tuple[int, int]]) -> float:
        rank, (x, y) = rank_and_place
        cx, cy = _inside(x, y, tag, size)
        rect = (cx, cy, cx + wide, cy + high)
        moved = abs(cx - x) + abs(cy - y)
        return (
            20.0 * sum(_overlap(rect, other) for other in taken)
            + sum(_overlap(rect, other) for other in boxes)
            + wide * (moved + 2.0 * rank)
        )

    _, (x, y) = min(enumerate(candidates), key=cost)
    return _inside(x, y, tag, size)


def _inside(x: int, y: int, tag: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    return max(min(x, size[0] - tag[0] - 1), 0), max(min(y, size[1] - tag[1] - 1), 0)


def _overlap(a: Rect, b: Rect) -> int:
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0)


LONGEST_S = 20
LARGEST_BYTES = 2_000_000
_SHOT_MS, _LAST_MS = 2500, 4500
_FRAME_PX, _TITLE_PX, _PICTURE_PX = (640, 640), 52, (640, 480)
_GROUND, _SOFT, _WRONG, _RIGHT = (28, 36, 48), (170, 180, 192), (255, 157, 102), (88, 211, 174)


@dataclass(frozen=True)
class Shot:
    """A frame of an animation: ``picture``, uint8 (H, W, 3) BGR, None: none; ``lanes``: of the score threshold and of the gate
    what it did, in lines, each with whether that was wrong, None: neither.
    """

    title: str
    picture: Picture | None
    lanes: tuple[tuple[tuple[str, bool | None], ...], ...] = ()


def write_animation(shots: Sequence[Shot], path: Path) -> None:
    """Write the ``shots`` as an animated WebP; raises OSError when the disk refuses.

    At most LONGEST_S seconds and, by lower quality, LARGEST_BYTES.
    """
    frames = [_frame(shot) for shot in shots]
    ms = [_SHOT_MS] * (len(frames) - 1) + [_LAST_MS]
    for quality in (75, 60, 40, 20, 5):
        encoded = BytesIO()
        frames[0].save(
            encoded, "WEBP", save_all=True, append_images=frames[1:], duration=ms, loop=0, quality=quality
        )
        if encoded.tell() <= LARGEST_BYTES:
            break
    write_file(path, encoded.getvalue())


def _frame(shot: Shot) -> Image.Image:
    half = _FRAME_PX[0] // 2
    frame = Image.new("RGB", _FRAME_PX, _GROUND)
    pen = ImageDraw.Draw(frame)
    pen.text((16, _TITLE_PX / 2), _plain(shot.title), font=_font(26), fill=_INK, anchor="lm")
    below = _TITLE_PX
    if shot.picture is not None:
        small = cv2.resize(shot.picture, _PICTURE_PX, interpolation=cv2.INTER_AREA)
        frame.paste(Image.fromarray(np.ascontiguousarray(small[..., ::-1])), (0, below))
        below += _PICTURE_PX[1]
    size, below = (22, below) if shot.picture is not None else (34, 160)
    for number, lines in enumerate(shot.lanes):
        x, y = 16 + number * half, below + 12
        pen.text((x, y), ("score threshold", "with the gate")[number], font=_font(18), fill=_SOFT)
        for row, (words, wrong) in enumerate(lines):
            colour = _INK if wrong is None else _WRONG if wrong else _RIGHT
            pen.text((x, y + 32 + row * 2 * size), _plain(words), font=_font(size), fill=colour)
    return frame
