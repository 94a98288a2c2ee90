# SPDX-License-Identifier: Apache-2.0
"""How often each target circumstance is in the source set already, with the uncertainty of counting (Wozniak et al., task
3), told by tags or from sharpness, noise and brightness of the pictures.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from pydantic import BaseModel, ConfigDict

from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.io.coco import (
    ANNOTATIONS,
    LabelledImage,
    check_objects,
    load_annotations,
    read_coco,
    read_picture,
)
from sticker_uq.io.images import Picture
from sticker_uq.io.reading import MOST_JSON, read_text
from sticker_uq.lab.corruptions import LabelledPicture
from sticker_uq.lab.corruptions.camera import linear
from sticker_uq.lab.rendering.render import RenderedScene, render
from sticker_uq.lab.rendering.scene_sampling import MAX_STICKERS, sample_scene
from sticker_uq.lab.rendering.scene_spec import SceneSpec
from sticker_uq.lab.robustness.spec import Circumstance, Specification
from sticker_uq.scene import InvalidInput, ObjectClass


@dataclass(frozen=True)
class TaggedImage:
    """One image of the source set. ``tags``: circumstances a person found in it; ``seed`` of its scene, where it was rendered."""

    item: LabelledImage
    tags: frozenset[str]
    seed: int | None = None

    def picture(self) -> LabelledPicture:
        """The source image with its objects, and with its scene and shapes where it is rendered.

        InvalidInput when the picture cannot be read or has another size than its data set says.
        """
        item = self.item
        image = read_picture(item)
        known = None if self.seed is None else _scene_of(self.seed, item)
        if known is None:
            return LabelledPicture.of(image, item.boxes, item.labels)
        scene, rendered = known
        shapes = np.zeros(rendered.id_map.shape, np.uint8)
        for number, identity in enumerate(rendered.ids):
            shapes[rendered.id_map == identity] = number + 1
        return LabelledPicture.of(image, item.boxes, item.labels, shapes, scene)


@dataclass(frozen=True)
class SourceSet:
    """The source data set (Wozniak et al., task 3). ``tagged``: somebody wrote down which circumstances its images are in."""

    folder: Path
    images: tuple[TaggedImage, ...]
    tagged: bool

    def __len__(self) -> int:
        return len(self.images)

    @classmethod
    def load(cls, folder: str | Path, tags: str | Path | None = None) -> SourceSet:
        """The labelled images of a COCO folder as source set.

        Tags are the list ``tags`` of an entry in ``images``, or come from the CSV file ``tags`` with the columns ``image`` (file
        name or id) and ``tags`` (separated by spaces, commas or semicolons). InvalidInput for a bad folder or a bad CSV file.
        """
        root = Path(folder)
        items = read_coco(root)
        check_objects(items, str(root))
        entries = {entry["id"]: entry for entry in load_annotations(root)["images"]}
        written = None if tags is None else _tags_of(Path(tags))
        images, found = [], set()
        for item in items:
            entry = entries[item.image_id]
            names = {str(item.image_id), item.path.name, str(entry["file_name"])}
            own = _own_tags(root / ANNOTATIONS, entry)
            if written is not None:
                found |= names & written.keys()
                own = frozenset().union(*(written[name] for name in names if name in written))
            seed = entry.get("seed")
            images.append(TaggedImage(item, own, seed if isinstance(seed, int) and seed >= 0 else None))
        if written is not None and set(written) - found:
            raise InvalidInput(f"{tags}: image {sorted(set(written) - found)[0]!r} is not in {root}")
        tagged = written is not None or any("tags" in entry for entry in entries.values())
        return cls(root, tuple(images), tagged)


def _own_tags(path: Path, entry: Mapping[str, Any]) -> frozenset[str]:
    tags = entry.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInput(f"{path}: image {entry['id']}: tags {tags!r}: expected a list of words")
    return frozenset(tags)


def _tags_of(path: Path) -> dict[str, frozenset[str]]:
    try:
        text = read_text(path, MOST_JSON, f"tags {path}")
        rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    except csv.Error as error:
        raise InvalidInput(f"tags {path} cannot be read: {error}") from None
    if not rows or not {"image", "tags"} <= rows[0].keys():
        raise InvalidInput(f"tags {path}: expected the columns image and tags, and at least one line")
    tags: dict[str, frozenset[str]] = {}
    for line, row in enumerate(rows, 2):
        image = (row["image"] or "").strip()
        if not image or image in tags:
            raise InvalidInput(f"tags {path}, line {line}: image {image!r}: expected every image once")
        tags[image] = frozenset((row["tags"] or "").replace(",", " ").replace(";", " ").split())
    return tags


def _scene_of(seed: int, item: LabelledImage) -> tuple[SceneSpec, RenderedScene] | None:
    """The scene of a seed, if it renders to the boxes of `item`; the number of stickers may have been chosen."""
    for stickers in (None, *range(MAX_STICKERS + 1)):
        scene = sample_scene(seed, stickers=stickers)
        if stickers is not None and len(scene.stickers) < int((item.labels == ObjectClass.STICKER).sum()):
            continue
        rendered = render(scene, (item.width, item.height))
        if np.array_equal(rendered.boxes, item.boxes) and np.array_equal(rendered.labels, item.labels):
            return scene, rendered
    return None


MIDDLE_GREY = 0.18
"""Linear light of a mean scene: 0 EV."""
_NORMAL_MAD = 0.6745
"""Median of the absolute value of a standard normal variable."""
_TO_WIDTH = 2.563
"""10-90 % width of an edge that was blurred by a Gaussian of standard deviation 1."""
_FINE, _COARSE = 1.0, 2.0
_SCHARR = 1 / 3
"""Variance of the blur of a central difference, px^2."""
_DIRECTIONS = 6
_SHARPER = 0.7
_FEWEST_EDGES = 40
_STRONG = 4.0
_FEWEST_BLOCKS = 200


@dataclass(frozen=True)
class Estimates:
    """Image quality measured on one source picture; NaN where it shows nothing to measure it on.

    ``blur`` px: 10-90 % width of its edges in the direction in which they are sharpest; ``motion`` px: how much wider they are in
    the direction in which they are widest; ``noise``: standard deviation in grey levels; ``exposure``: mean light against middle
    grey, EV.
    """

    blur: float
    motion: float
    noise: float
    exposure: float


def estimate(image: Picture) -> Estimates:
    """Sharpness, noise and brightness of `image` (H, W, 3) uint8 BGR, for the circumstances."""
    blur, widest = edge_widths(image)
    return Estimates(blur, widest - blur, noise(image), exposure(image))


def noise(image: Picture) -> float:
    """White noise of a source picture: standard deviation, grey levels.

    It is estimated by the median absolute deviation of the finest diagonal Haar wavelet coefficients.

    Mean over the colours (Donoho and Johnstone, 1994). Pixels that are nearly black or white are left out: clipping hides noise.
    NaN when hardly any are left.
    """
    height, width = (side // 2 * 2 for side in image.shape[:2])
    values = image[:height, :width].astype(np.float32)
    blocks = values.reshape(height // 2, 2, width // 2, 2, 3)
    usable = np.all((blocks > 3) & (blocks < 252), axis=(1, 3))
    diagonal = np.abs(blocks[:, 0, :, 0] - blocks[:, 0, :, 1] - blocks[:, 1, :, 0] + blocks[:, 1, :, 1]) / 2
    found = [
        np.median(diagonal[:, :, colour][usable[:, :, colour]])
        for colour in range(3)
        if np.count_nonzero(usable[:, :, colour]) >= _FEWEST_BLOCKS
    ]
    return float(np.mean(found)) / _NORMAL_MAD if found else math.nan


def exposure(image: Picture) -> float:
    """Brightness of a source picture: mean of linear light against middle grey, EV (stops).

    Minus infinity for a black picture.
    """
    mean = float(linear(image).mean())
    return math.log2(mean / MIDDLE_GREY) if mean > 0 else -math.inf


def edge_widths(image: Picture) -> tuple[float, float]:
    """Sharpness of a source picture: 10-90 % widths of edges, px.

    In the direction in which they are sharpest, and in the one in which they are widest.

    The gradient of an edge of width sigma falls with a further blur s as 1 / sqrt(sigma^2 + s^2); its ratio after two known blurs
    tells sigma (Zhuo and Sim, 2011). Each direction is judged by its edges but for the softest, which are soft on the laptop
    itself. NaN without enough edges.
    """
    light = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY).astype(np.float32)
    fine, coarse = (cv2.GaussianBlur(light, (0, 0), sigma) for sigma in (_FINE, _COARSE))
    dx, dy = (cv2.Scharr(fine, cv2.CV_32F, *axis) / 32 for axis in ((1, 0), (0, 1)))
    strength = np.hypot(dx, dy)
    after = np.hypot(cv2.Scharr(coarse, cv2.CV_32F, 1, 0), cv2.Scharr(coarse, cv2.CV_32F, 0, 1)) / 32
    angle = np.arctan2(dy, dx) % np.pi
    # An edge is where the gradient is largest along its own direction, and well above what noise makes.
    floor = max(_STRONG * float(np.median(strength)), 1.0)
    step_x, step_y = np.rint(np.cos(angle)).astype(int), np.rint(np.sin(angle)).astype(int)
    ys, xs = np.nonzero(strength[2:-2, 2:-2] > floor)
    ys, xs = ys + 2, xs + 2
    sx, sy = step_x[ys, xs], step_y[ys, xs]
    peak = (strength[ys, xs] >= strength[ys + sy, xs + sx]) & (strength[ys, xs] > strength[ys - sy, xs - sx])
    ys, xs = ys[peak], xs[peak]
    square = np.maximum(strength[ys, xs] / np.maximum(after[ys, xs], 1e-6), 1.0 + 1e-6) ** 2
    first, second = _FINE**2 + _SCHARR, _COARSE**2 + _SCHARR
    variance = np.maximum((second - square * first) / (square - 1), 0.0)
    direction = np.floor(angle[ys, xs] / np.pi * _DIRECTIONS + 0.5).astype(int) % _DIRECTIONS
    widths = [
        _TO_WIDTH * math.sqrt(float(np.quantile(variance[direction == d], _SHARPER)))
        for d in range(_DIRECTIONS)
        if np.count_nonzero(direction == d) >= _FEWEST_EDGES
    ]
    return (min(widths), max(widths)) if widths else (math.nan, math.nan)


MISSING, UNDER, COVERED, OVER, UNKNOWN = (
    "missing",
    "under-represented",
    "covered",
    "over-represented",
    "unknown",
)


class CoverageRow(BaseModel):
    """How often a circumstance is expected (``target``), and how often it was found among ``images`` of the source set.

    ``found_by``: "tags", the quantity that was measured, or "" when nobody can tell (``count`` is 0 and the frequencies are NaN
    then). ``source``: the frequency, with its Clopper-Pearson interval ``low`` to ``high``. ``status``: missing (not once),
    under- or over-represented (the target frequency lies outside the interval), covered, or unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    circumstance: str
    significance: int
    target: float
    images: int
    count: int
    source: float
    low: float
    high: float
    found_by: str
    status: str


@dataclass(frozen=True)
class Coverage:
    """All circumstances together, as the paper's sheet sums them up (Wozniak et al., figure A1): shares.

    ``missing``: expected but not in the source set; ``misrepresented``: more or less frequent than expected, whatever the reason;
    ``covered``: the rest. ``to_generate``: those less frequent than expected, the most significant first.
    """

    missing: float
    misrepresented: float
    covered: float
    to_generate: tuple[str, ...]


def describe_source(
    spec: Specification, source: SourceSet, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[CoverageRow]:
    """The frequency of every circumstance in the source set, in the order of the specification.

    Tags decide where the set has any, for the circumstances that somebody tagged and for those that cannot be measured; what the
    specification says how to measure is measured otherwise. ``progress`` is called with the images seen and their number.
    InvalidInput for a picture that cannot be read.
    """
    tagged = set().union(*(image.tags for image in source.images)) if source.tagged else set()
    measured = [c for c in spec.circumstances if c.measured is not None and c.name not in tagged]
    estimates: list[Estimates] = []
    if measured:
        for done, image in enumerate(source.images):
            progress(done, len(source))
            estimates.append(estimate(read_picture(image.item)))
        progress(len(source), len(source))
    return [_frequency(spec, c, source, tagged, estimates) for c in spec.circumstances]


def coverage(frequencies: Sequence[CoverageRow]) -> Coverage:
    """How well the source images cover the target circumstances: comparison of frequencies, as in the paper. Unknown ones do
    not count.
    """
    known = [f for f in frequencies if f.found_by]
    short = [f for f in known if f.target > f.source]
    wrong = sum(not math.isclose(f.target, f.source, abs_tol=1e-9) for f in known)
    total = len(known)
    return Coverage(
        missing=sum(f.count == 0 and f.target > 0 for f in known) / total if total else math.nan,
        misrepresented=wrong / total if total else math.nan,
        covered=1 - wrong / total if total else math.nan,
        to_generate=tuple(
            f.circumstance for f in sorted(short, key=lambda f: (-f.significance, f.circumstance))
        ),
    )


def _frequency(
    spec: Specification,
    circumstance: Circumstance,
    source: SourceSet,
    tagged: set[str],
    estimates: Sequence[Estimates],
) -> CoverageRow:
    rule = circumstance.measured
    if circumstance.name in tagged or (source.tagged and rule is None):
        found_by, count = "tags", _tagged(circumstance.name, source.images)
    elif rule is not None:
        values = [asdict(one)[rule.quantity] for one in estimates]
        found_by, count = rule.quantity, sum(rule.holds(value) for value in values)
    else:
        found_by, count = "", 0
    images = len(source)
    low, high = clopper_pearson(count, images, spec.confidence) if found_by else (math.nan, math.nan)
    return CoverageRow(
        circumstance=circumstance.name,
        significance=circumstance.significance,
        target=circumstance.frequency,
        images=images,
        count=count,
        source=count / images if found_by else math.nan,
        low=low,
        high=high,
        found_by=found_by,
        status=_status(count, low, high, circumstance.frequency) if found_by else UNKNOWN,
    )


def _tagged(name: str, images: Sequence[TaggedImage]) -> int:
    return sum(name in image.tags for image in images)


def _status(count: int, low: float, high: float, target: float) -> str:
    if count == 0 and target > 0:
        return MISSING
    if target > high:
        return UNDER
    return OVER if target < low else COVERED
