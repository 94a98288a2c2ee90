# SPDX-License-Identifier: Apache-2.0
"""How often each target circumstance is in the source set already, with the uncertainty of counting (Wozniak et al., task
3), told by tags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.io import coco
from sticker_uq.io.setting_fields import Frozen
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.corruptions import LabelledPicture
from sticker_uq_lab.rendering.render import RenderedScene, render
from sticker_uq_lab.rendering.scene_sampling import MAX_STICKERS, sample_scene
from sticker_uq_lab.rendering.scene_spec import SceneSpec
from sticker_uq_lab.robustness.spec import Specification


@dataclass(frozen=True)
class TaggedImage:
    """One image of the source set. ``tags``: circumstances a person found in it; ``seed`` of its scene, where it was rendered."""

    item: coco.LabelledImage
    tags: frozenset[str]
    seed: int | None = None

    def picture(self) -> LabelledPicture:
        item = self.item
        image = coco.read_picture(item)
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
    def load(cls, folder: str | Path) -> SourceSet:
        """The labelled images of a COCO folder as source set. Tags are the list ``tags`` of an entry in ``images``."""
        root = Path(folder)
        items = coco.read_coco(root)
        coco.check_objects(items, str(root))
        entries = {entry["id"]: entry for entry in coco.load_annotations(root)["images"]}
        images = []
        for item in items:
            entry = entries[item.image_id]
            tags, seed = entry.get("tags", []), entry.get("seed")
            if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
                where = f"{root / coco.ANNOTATIONS}: image {item.image_id}"
                raise InvalidInput(f"{where}: tags {tags!r}: expected a list of words")
            known = seed if isinstance(seed, int) and seed >= 0 else None
            images.append(TaggedImage(item, frozenset(tags), known))
        return cls(root, tuple(images), any("tags" in entry for entry in entries.values()))


def _scene_of(seed: int, item: coco.LabelledImage) -> tuple[SceneSpec, RenderedScene] | None:
    """The scene of a seed, if it renders to the boxes of `item`; the number of stickers may have been chosen."""
    for stickers in (None, *range(MAX_STICKERS + 1)):
        scene = sample_scene(seed, stickers=stickers)
        if stickers is not None and len(scene.stickers) < int((item.labels == ObjectClass.STICKER).sum()):
            continue
        rendered = render(scene, (item.width, item.height))
        if np.array_equal(rendered.boxes, item.boxes) and np.array_equal(rendered.labels, item.labels):
            return scene, rendered
    return None


class CoverageRow(Frozen):
    """How often a circumstance is expected (``target``), and how often it is tagged in the source images.

    ``source``: the frequency, with its Clopper-Pearson interval ``low`` to ``high``. ``status``: missing (not once),
    under-represented or over-represented (the target frequency lies outside the interval), or covered.
    """

    circumstance: str
    significance: int
    target: float
    source: float
    low: float
    high: float
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


def describe_source(spec: Specification, source: SourceSet) -> list[CoverageRow]:
    """The frequency of every circumstance in ``source``, in the order of the specification; none where it is not tagged."""
    if not source.tagged:
        return []
    rows = []
    for circumstance in spec.circumstances:
        count = sum(circumstance.name in image.tags for image in source.images)
        target = circumstance.frequency
        low, high = clopper_pearson(count, len(source), spec.confidence)
        status = "over-represented" if target < low else "covered"
        if target > high:
            status = "under-represented"
        if count == 0 and target > 0:
            status = "missing"
        rows.append(
            CoverageRow(
                circumstance=circumstance.name,
                significance=circumstance.significance,
                target=target,
                source=count / len(source),
                low=low,
                high=high,
                status=status,
            )
        )
    return rows


def coverage(rows: Sequence[CoverageRow]) -> Coverage:
    """How well the source images cover the target circumstances: comparison of frequencies, as in the paper."""
    short = sorted((r for r in rows if r.target > r.source), key=lambda r: (-r.significance, r.circumstance))
    wrong = sum(not math.isclose(r.target, r.source, abs_tol=1e-9) for r in rows) / len(rows)
    return Coverage(
        missing=sum(r.source == 0 and r.target > 0 for r in rows) / len(rows),
        misrepresented=wrong,
        covered=1 - wrong,
        to_generate=tuple(r.circumstance for r in short),
    )
