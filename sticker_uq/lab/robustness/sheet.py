# SPDX-License-Identifier: Apache-2.0
"""The picture sheet of a robustness assessment: every circumstance at three strengths, for a domain expert to confirm what may
still be expected.

Wozniak et al. let an expert say from which distance on a picture is hard for the human eye (section 5.8); here the expert sees
the pictures, their distance d, and what epsilon allows at it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import cv2

from sticker_uq.evaluation.reporting.document import templates
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import Picture, encode_jpeg
from sticker_uq.lab.corruptions import LabelledPicture, transformation_named
from sticker_uq.lab.robustness.drawing import check_transformations, circumstance_set, with_transformation
from sticker_uq.lab.robustness.followups import applied_to
from sticker_uq.lab.robustness.image_distances import compare
from sticker_uq.lab.robustness.source_set import SourceSet
from sticker_uq.lab.robustness.spec import Circumstance, Specification
from sticker_uq.scene import InvalidInput

STRENGTHS = ("mild", "middle", "severe")
_WIDTH = 420
_PER_PICTURE = ("mse", "psnr", "ssim", "cw_ssim")
_BOX_COLOURS = {1: (220, 130, 30), 2: (60, 190, 60)}


@dataclass(frozen=True)
class Sample:
    """A circumstance at one strength on the picture sheet: picture, distance d from its source, what epsilon allows by metric.

    ``distance`` is None, and nothing is allowed, where the specification's distance is one between sets.
    """

    word: str
    strength: float
    image: Picture
    distance: float | None
    allowed: dict[str, float]


def sheet_samples(
    spec: Specification, circumstance: Circumstance, picture: LabelledPicture, number: int
) -> list[Sample]:
    """Circumstances as pictures: one at the ends and the middle of its strengths, on one place of `picture` (number in its
    set).
    """
    assert circumstance.strength is not None
    mild, severe = circumstance.strength
    found = []
    for word, strength in zip(STRENGTHS, (mild, (mild + severe) / 2, severe), strict=True):
        fixed = circumstance.model_copy(update={"strength": (strength, strength)})
        (draft,) = circumstance_set(spec, fixed, [number]).drafts
        after = applied_to(picture, draft.applied)
        distance, allowed = None, {}
        if spec.distance in _PER_PICTURE:
            distance = compare(picture.image, after.image).distance(spec.distance)
            allowed = {m: spec.epsilon(m, distance, circumstance.significance) for m in spec.relations}
        found.append(Sample(word, strength, draw_expected_boxes(after), distance, allowed))
    return found


def draw_expected_boxes(picture: LabelledPicture) -> Picture:
    """The picture of a circumstance with the boxes that a detector is expected to find: logos blue, stickers green."""
    image = picture.image.copy()
    for box, label in zip(picture.boxes, picture.labels.tolist(), strict=True):
        x1, y1, x2, y2 = (round(float(v)) for v in box)
        cv2.rectangle(image, (x1, y1), (x2, y2), _BOX_COLOURS.get(label, (0, 0, 255)), 2)
    return image


def write_sheet(spec: Specification, source: SourceSet, path: Path, number: int = 0) -> int:
    """Write the picture sheet of all circumstances on image `number` of `source` to `path`, one HTML file without references.

    Returns the number of circumstances on it. InvalidInput when there is no such image or a transformation does not exist.
    """
    check_transformations(spec)
    if not 0 <= number < len(source):
        raise InvalidInput(f"image {number}: expected 0 to {len(source) - 1}")
    picture = source.images[number].picture()
    rows = []
    for circumstance in with_transformation(spec):
        assert circumstance.transformation is not None
        rows.append(
            {
                "circumstance": circumstance,
                "known": transformation_named(circumstance.transformation),
                "samples": [
                    {"of": s, "jpeg": _inline(s.image)}
                    for s in sheet_samples(spec, circumstance, picture, number)
                ],
            }
        )
    text = (
        templates("sticker_uq.lab.robustness")
        .get_template("sheet.html")
        .render(
            spec=spec,
            rows=rows,
            source=_inline(draw_expected_boxes(picture)),
            name=source.images[number].item.path.name,
        )
    )
    with atomic_write(path, "w") as stream:
        stream.write(text)
    return len(rows)


def _inline(image: Picture) -> str:
    small = cv2.resize(
        image, (_WIDTH, round(_WIDTH * image.shape[0] / image.shape[1])), interpolation=cv2.INTER_AREA
    )
    return base64.b64encode(encode_jpeg(small, 80)).decode()
