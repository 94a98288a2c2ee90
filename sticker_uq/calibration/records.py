"""Labelled images and what perception says about them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.cache import (
    AssessmentCache,
    assessment_from_plain,
    assessment_to_plain,
    code_fingerprint,
)
from sticker_uq.datasets.coco import ANNOTATIONS, LabelledImage, read_annotations, read_coco
from sticker_uq.datasets.sources import ImageSource, SourceImage, open_source
from sticker_uq.scene import FloatArray, InvalidInput, ObjectClass, SceneAssessment, Status


@dataclass(frozen=True)
class Record:
    """One labelled image: ``boxes`` (N, 4) px and ``labels`` (N,) of what is there, ``assessment`` of what was seen."""

    name: str
    boxes: FloatArray
    labels: NDArray[np.int64]
    assessment: SceneAssessment

    @property
    def stickers(self) -> FloatArray:
        """Boxes of the stickers, (S, 4) px."""
        return self.boxes[self.labels == ObjectClass.STICKER]


class LabelledSource(ImageSource):
    """The labelled images of a COCO folder or of a recording, in the order of their annotations or of the recording.

    A COCO folder holds ``annotations.json``. A recording (rosbag2 folder) is labelled by an ``annotations.json`` in the same
    folder whose file names are the numbers of its images, as `sticker-uq replay` counts them ("000042.jpg"); images that it
    does not name are left out. Raises :class:`InvalidInput` where that is not so.
    """

    continuous = False

    def __init__(self, path: Path, topic: str | None = None) -> None:
        self.path = path
        self._images: ImageSource | None = None
        if (path / "metadata.yaml").is_file():
            self._images = open_source(path, topic)
            annotated = read_annotations(path)
        else:
            annotated = read_coco(path)
        self.items = {_name(item): item for item in annotated}
        if len(self.items) != len(annotated):
            raise InvalidInput(f"{path / ANNOTATIONS}: two images have the same file name")

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[SourceImage]:
        if self._images is None:
            for name, item in self.items.items():
                image = next(iter(open_source(item.path)))
                yield SourceImage(image.image, 0, "", name, image.error)
            return
        found = 0
        for image in self._images:
            if image.name in self.items:
                found += 1
                yield image
        if found != len(self.items):
            raise InvalidInput(
                f"{self.path / ANNOTATIONS}: names {len(self.items)} images, but the recording has {found} of them"
            )

    def fingerprint(self, digests: Sequence[str]) -> str:
        """SHA-256 over the images with ``digests``, in order, and their labels, hex."""
        whole = hashlib.sha256()
        for item, digest in zip(self.items.values(), digests, strict=True):
            whole.update(digest.encode() + item.boxes.tobytes() + item.labels.tobytes())
        return whole.hexdigest()


def _name(item: LabelledImage) -> str:
    return item.path.stem


@dataclass(frozen=True)
class Assessed:
    """What came of one source: its records, and how to recognise it."""

    source: str
    records: tuple[Record, ...]
    fingerprint: str


def assess(
    source: LabelledSource,
    run: Callable[[ImageSource], Iterable[tuple[SourceImage, SceneAssessment]]],
    cache: AssessmentCache,
    identity: str,
    progress: Callable[[], None] = lambda: None,
) -> Assessed:
    """Records of every image of ``source``.

    ``run`` assesses images in order; ``identity`` names weights and settings: an assessment is taken from ``cache`` if the
    same pixels were assessed under the same identity by the same code. Raises :class:`InvalidInput` for an image that cannot
    be read or assessed.
    """
    prefix = f"{identity}:{code_fingerprint()}"
    assessments: dict[str, SceneAssessment] = {}
    missing = _Missing(source, cache, prefix, assessments, progress)
    for item, assessment in run(missing):
        if assessment.status is Status.FAILED:
            raise InvalidInput(f"{source.path}: image {item.name}: {assessment.status_text}")
        cache.put(f"{prefix}:{assessment.image_digest}", assessment_to_plain(assessment))
        assessments[item.name] = assessment
        progress()
    records = tuple(
        Record(name, item.boxes, item.labels, assessments[name]) for name, item in source.items.items()
    )
    return Assessed(
        str(source.path), records, source.fingerprint([r.assessment.image_digest for r in records])
    )


class _Missing(ImageSource):
    """The images of a source that the cache does not know; what it knows is put aside while iterating."""

    continuous = False

    def __init__(
        self,
        source: LabelledSource,
        cache: AssessmentCache,
        prefix: str,
        known: dict[str, SceneAssessment],
        progress: Callable[[], None],
    ) -> None:
        self._source, self._cache, self._prefix = source, cache, prefix
        self._known, self._progress = known, progress

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[SourceImage]:
        from sticker_uq.perception.pipeline import image_digest  # loads torch, which help need not wait for

        for item in self._source:
            if item.image is None:
                raise InvalidInput(f"{self._source.path}: image {item.name}: {item.error}")
            kept = self._cache.get(f"{self._prefix}:{image_digest(item.image)}")
            if kept is None:
                yield item
                continue
            self._known[item.name] = assessment_from_plain(kept)
            self._progress()
