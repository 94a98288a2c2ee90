# SPDX-License-Identifier: Apache-2.0
"""Labelled images and what perception says about them, as calibration reads them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.answers import Answered
from sticker_uq.evaluation.metrics.decisions import Met, met_labels
from sticker_uq.evaluation.replay import assessing
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, ObjectClass, SceneAssessment, Status


@dataclass(frozen=True)
class Record:
    """One labelled image: ``boxes`` (N, 4) px and ``labels`` (N,) of what is there, ``assessment`` of what was seen.

    ``workpiece``: the laptop that it shows, "" when nobody says; images of the same one are no independent evidence. ``said``:
    what a person answered about the picture, in place of boxes and labels.
    """

    name: str
    boxes: FloatArray
    labels: NDArray[np.int64]
    assessment: SceneAssessment
    workpiece: str = ""
    said: Answered | None = None

    @property
    def stickers(self) -> FloatArray:
        return self.boxes[self.labels == ObjectClass.STICKER]

    @property
    def sticker_count(self) -> int:
        """The stickers on it; of a picture with answers those that no box could release count as one."""
        return len(self.stickers) if self.said is None else self.said.sticker_count

    def met(self, regions: FloatArray, match_iou: float) -> Met:
        """What removals of ``regions`` (R, 4) px meet; those of a picture with answers, where ``match_iou`` is the person's, must
        have been asked about.
        """
        if self.said is not None:
            return self.said.met(regions)
        return met_labels(regions, self.boxes, self.labels, match_iou)


def units_of(records: Sequence[Record]) -> IntArray:
    """The number of each image's exchangeable unit, (N,) from 0 on: its workpiece, or itself if unknown."""
    return number_units([record.workpiece for record in records])


def number_units(workpieces: Sequence[str]) -> IntArray:
    """The number of each image's laptop, (N,) from 0 on; an image whose laptop is "" has one of its own."""
    known: dict[str, int] = {}
    units = []
    for number, workpiece in enumerate(workpieces):
        key = f"workpiece {workpiece}" if workpiece else f"image {number}"
        units.append(known.setdefault(key, len(known)))
    return np.array(units, np.int64)


def first_of_each(records: Sequence[Record]) -> list[Record]:
    """The first image of every laptop: what the watch compares with."""
    numbers = np.unique(units_of(records), return_index=True)[1]
    return [records[number] for number in sorted(numbers.tolist())]


@dataclass(frozen=True)
class Assessed:
    """The records of one source, and how to recognise it."""

    source: str
    records: tuple[Record, ...]
    fingerprint: str


class Pictures(Protocol):
    """Pictures of a source, of which ``path`` names the source."""

    @property
    def path(self) -> Path: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[SourceImage]: ...


def assess(
    source: LabelledSource,
    run: Callable[[ImageSource], Iterable[tuple[SourceImage, SceneAssessment]]],
    cache: JsonStore,
    identity: str,
    progress: Callable[[], None] = lambda: None,
) -> Assessed:
    """What perception says about every labelled image of ``source``, see :func:`see`."""
    return join_labels(source, see(source, run, cache, identity, progress))


def join_labels(source: LabelledSource, seen: Mapping[str, SceneAssessment]) -> Assessed:
    """The records of ``source``, whose images were ``seen``, by name."""
    records = tuple(
        Record(name, item.boxes, item.labels, seen[name], source.workpiece_of(item, seen[name].stamp_ns))
        for name, item in source.items.items()
    )
    return Assessed(
        str(source.path), records, source.fingerprint([r.assessment.image_digest for r in records])
    )


def see(
    source: Pictures,
    run: Callable[[ImageSource], Iterable[tuple[SourceImage, SceneAssessment]]],
    cache: JsonStore,
    identity: str,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, SceneAssessment]:
    """What perception says about every image of ``source``, by name.

    ``run`` assesses images in order; ``identity`` names weights and settings: an assessment is taken from ``cache`` if the
    same pixels were assessed under the same identity by the same code. Raises :class:`InvalidInput` for an image that cannot
    be read or assessed.
    """
    prefix = f"{identity}:{assessing.code_fingerprint()}"
    assessments: dict[str, SceneAssessment] = {}
    missing = _Missing(source, cache, prefix, assessments, progress)
    for item, assessment in run(missing):
        if assessment.status is Status.FAILED:
            raise InvalidInput(f"{source.path}: image {item.name}: {assessment.status_text}")
        cache.put({f"{prefix}:{assessment.image_digest}": assessing.assessment_to_plain(assessment)})
        assessments[item.name] = assessment
        progress()
    return assessments


class _Missing(ImageSource):
    """The images of a source that the cache does not know; what it knows is put aside while iterating."""

    continuous = False

    def __init__(
        self,
        source: Pictures,
        cache: JsonStore,
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
                assessing.assessment_from_plain(kept), stamp_ns=item.stamp_ns, frame_id=item.frame_id
            )
            self._progress()
