"""Labelled images and what perception says about them."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.cache import (
    AssessmentCache,
    assessment_from_plain,
    assessment_to_plain,
    code_fingerprint,
)
from sticker_uq.datasets.bags import Bag
from sticker_uq.datasets.coco import ANNOTATIONS, LabelledImage, read_annotations, read_coco
from sticker_uq.datasets.sources import ImageSource, SourceImage, open_source
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, ObjectClass, SceneAssessment, Status

_WORKPIECE = "sticker_uq_msgs/msg/Workpiece"


@dataclass(frozen=True)
class Record:
    """One labelled image: ``boxes`` (N, 4) px and ``labels`` (N,) of what is there, ``assessment`` of what was seen.

    ``workpiece``: the laptop that it shows, "" when nobody says; images of the same one are no independent evidence.
    """

    name: str
    boxes: FloatArray
    labels: NDArray[np.int64]
    assessment: SceneAssessment
    workpiece: str = ""

    @property
    def stickers(self) -> FloatArray:
        """Boxes of the stickers, (S, 4) px."""
        return self.boxes[self.labels == ObjectClass.STICKER]


def units_of(records: Sequence[Record]) -> IntArray:
    """The number of the exchangeable unit of each record, (N,) from 0 on: its workpiece, or itself when that is not known."""
    known: dict[str, int] = {}
    units = []
    for number, record in enumerate(records):
        key = f"workpiece {record.workpiece}" if record.workpiece else f"image {number}"
        units.append(known.setdefault(key, len(known)))
    return np.array(units, np.int64)


class LabelledSource(ImageSource):
    """The labelled images of a COCO folder or of a recording, in the order of their annotations or of the recording.

    A COCO folder holds ``annotations.json``. A recording (rosbag2 folder) is labelled by an ``annotations.json`` in the same
    folder whose file names are the numbers of its images, as `sticker-uq replay` counts them ("000042.jpg"); images that it
    does not name are left out. ``workpieces`` are the laptops that a recording announces, with the time of each in ns, by
    time; empty when it does not say. Raises :class:`InvalidInput` where that is not so.
    """

    continuous = False
    recorded = False
    workpieces: tuple[tuple[int, str], ...] = ()

    def __init__(self, path: Path, topic: str | None = None) -> None:
        self.path = path
        self._images: ImageSource | None = None
        if (path / "metadata.yaml").is_file():
            self._images = open_source(path, topic)
            self.recorded = True
            self.workpieces = recorded_workpieces(path)
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

    def workpiece_at(self, stamp_ns: int) -> str:
        """The laptop that lay in the cell at ``stamp_ns``, unique over all sources; "" when the recording does not say."""
        before = bisect_right(self.workpieces, stamp_ns, key=lambda announced: announced[0])
        return f"{self.workpieces[before - 1][1]} of {self.path}" if before else ""

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
        Record(name, item.boxes, item.labels, seen, source.workpiece_at(seen.stamp_ns))
        for name, item in source.items.items()
        for seen in [assessments[name]]
    )
    return Assessed(
        str(source.path), records, source.fingerprint([r.assessment.image_digest for r in records])
    )


def recorded_workpieces(path: Path) -> tuple[tuple[int, str], ...]:
    """When which laptop was handed over in a recording, by time in ns; empty when nobody recorded it.

    Two laptops of the same name are told apart by their order. Raises :class:`InvalidInput` when the recording cannot be read.
    """
    bag = Bag(path)
    topics = [topic for topic, kind in bag.topics.items() if kind == _WORKPIECE]
    announced = []
    for topic in topics:
        for item in bag.messages(topic):
            if item.message is not None and item.message.id:
                stamp = item.message.header.stamp
                announced.append((stamp.sec * 1_000_000_000 + stamp.nanosec, item.message.id))
    turns: list[tuple[int, str]] = []
    for stamp_ns, name in sorted(announced):
        if not turns or turns[-1][1] != name:
            turns.append((stamp_ns, name))
    return tuple((stamp_ns, f"{number} ({name})") for number, (stamp_ns, name) in enumerate(turns, 1))


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
            # the same pixels may have been seen at another time
            self._known[item.name] = replace(
                assessment_from_plain(kept), stamp_ns=item.stamp_ns, frame_id=item.frame_id
            )
            self._progress()
