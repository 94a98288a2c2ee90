# SPDX-License-Identifier: Apache-2.0
"""Which pictures of a replay are drawn, which of them are kept, which the report shows."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Generic, TypeVar

from sticker_uq.evaluation.reporting.annotated_images import Picture, annotate, saliency_overlay
from sticker_uq.evaluation.reporting.report_model import ReportEntry
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.sources import SourceImage
from sticker_uq.scene import SceneAssessment, SceneDecision

T = TypeVar("T")

SHOWN = 24
"""Most images that a report shows."""
_AHEAD = 4  # pictures that may wait to be drawn


class Spread(Generic[T]):
    """At most `most` of a row of things of unknown length, evenly spread over it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._step = 1
        self._count = 0
        self._kept: list[tuple[int, T]] = []

    def place(self) -> int | None:
        """The place of the replay's next picture, None when it is not wanted; to be asked once for each."""
        self._count += 1
        wanted = self._most > 0 and (self._count - 1) % self._step == 0
        return self._count - 1 if wanted else None

    def add(self, place: int, thing: T) -> None:
        """Keep the replay's picture `thing`; not if the places have become rarer since it was asked about."""
        if place % self._step:
            return
        self._kept.append((place, thing))
        while len(self._kept) > self._most:
            self._step *= 2
            self._kept = [(index, thing) for index, thing in self._kept if index % self._step == 0]

    def kept(self) -> list[T]:
        return [thing for _, thing in self._kept]


class Gallery:
    """Draws a replay's pictures into `folder`, at most `most` (None: all), and collects what the report shows.

    The report shows images that differ in what was decided from the one before; where the images do not follow each other
    in time (`continuous` False) any of them. Drawing runs beside the caller in a thread of its own. A context manager.
    """

    def __init__(self, folder: Path, most: int | None, continuous: bool) -> None:
        self._folder = folder
        self._continuous = continuous
        self._spread: Spread[tuple[str, bytes]] | None = None if most is None else Spread(most)
        self._shown: Spread[ReportEntry] = Spread(SHOWN)
        self._written: list[str] = []
        self._last: object = None
        self._artist = ThreadPoolExecutor(1, "artist")
        self._drawing: deque[Future[None]] = deque()
        if most != 0:
            folder.mkdir()

    def __enter__(self) -> Gallery:
        return self

    def __exit__(self, *_: object) -> None:
        self._artist.shutdown(cancel_futures=True)

    def add(self, item: SourceImage, assessment: SceneAssessment, decision: SceneDecision) -> None:
        """Take up the replay's next image. Raises OSError when the disk refused its picture or that of an image shortly
        before.
        """
        kept = 0 if self._spread is None else self._spread.place()
        shown = self._shown.place() if self._differs(assessment, decision) else None
        if kept is None and shown is None:
            return
        self._drawing.append(self._artist.submit(self._draw, item, assessment, decision, kept, shown))
        while len(self._drawing) > _AHEAD:
            self._drawing.popleft().result()

    def finish(self) -> list[str]:
        """Draw the rest of a replay's pictures and write what was kept back; returns the names of all pictures in the folder."""
        while self._drawing:
            self._drawing.popleft().result()
        for name, jpeg in self._spread.kept() if self._spread is not None else []:
            self._write(name, jpeg)
        return self._written

    def entries(self) -> list[ReportEntry]:
        return self._shown.kept()

    def _draw(
        self,
        item: SourceImage,
        assessment: SceneAssessment,
        decision: SceneDecision,
        kept: int | None,
        shown: int | None,
    ) -> None:
        picture = None if item.image is None else annotate(item.image, assessment, decision)
        if kept is not None and picture is not None:
            if self._spread is None:
                self._write(item.name, encode_jpeg(picture))
            else:
                self._spread.add(kept, (item.name, encode_jpeg(picture)))
        if shown is not None:
            self._shown.add(
                shown,
                ReportEntry(
                    f"Image {item.name}",
                    assessment,
                    decision,
                    picture,
                    attention=_attention(item.image, assessment),
                ),
            )

    def _differs(self, assessment: SceneAssessment, decision: SceneDecision) -> bool:
        verdicts = sorted((verdict.object.label, verdict.verdict) for verdict in decision.verdicts)
        said = (assessment.status, decision.outcome, verdicts)
        differs = not self._continuous or said != self._last
        self._last = said
        return differs

    def _write(self, name: str, jpeg: bytes) -> None:
        file = name if name.lower().endswith((".jpg", ".jpeg")) else f"{name}.jpg"
        with atomic_write(self._folder / file) as stream:
            stream.write(jpeg)
        self._written.append(file)


def _attention(image: Picture | None, assessment: SceneAssessment) -> Picture | None:
    """The saliency over `image`, None where there is none."""
    localization = assessment.localization
    if image is None or localization is None or localization.saliency is None:
        return None
    return saliency_overlay(image, assessment)
