"""Which pictures of a long row are drawn, which of them are kept, which the report shows."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

from sticker_uq.datasets.files import atomic_write
from sticker_uq.datasets.images import encode_jpeg
from sticker_uq.datasets.sources import SourceImage
from sticker_uq.evaluation.pictures import annotate
from sticker_uq.evaluation.report_model import ReportEntry
from sticker_uq.scene import SceneAssessment, SceneDecision

T = TypeVar("T")

SHOWN = 24
"""Most images that a report shows."""


class Spread(Generic[T]):
    """At most `most` of a row of things whose length nobody knows, evenly spread over it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._step = 1
        self._count = 0
        self._kept: list[tuple[int, T]] = []

    def wants(self) -> bool:
        """Whether the next thing of the row is wanted; to be asked once for each."""
        self._count += 1
        return self._most > 0 and (self._count - 1) % self._step == 0

    def add(self, thing: T) -> None:
        """Keep the thing that was just asked about, for which room is made."""
        self._kept.append((self._count - 1, thing))
        while len(self._kept) > self._most:
            self._step *= 2
            self._kept = [(index, thing) for index, thing in self._kept if index % self._step == 0]

    def kept(self) -> list[T]:
        """What is kept, in order."""
        return [thing for _, thing in self._kept]


class Gallery:
    """Draws pictures into `folder`, at most `most` (None: all), and collects what the report shows.

    The report shows images that differ in what was decided from the one before; where the images do not follow each other
    in time (`continuous` False) any of them.
    """

    def __init__(self, folder: Path, most: int | None, continuous: bool) -> None:
        self._folder = folder
        self._continuous = continuous
        self._spread: Spread[tuple[str, bytes]] | None = None if most is None else Spread(most)
        self._shown: Spread[ReportEntry] = Spread(SHOWN)
        self._written: list[str] = []
        self._last: object = None
        if most != 0:
            folder.mkdir()

    def add(self, item: SourceImage, assessment: SceneAssessment, decision: SceneDecision) -> None:
        """Take up the next image. Raises OSError when the disk refuses its picture."""
        kept = self._spread is None or self._spread.wants()
        shown = self._differs(assessment, decision) and self._shown.wants()
        if not kept and not shown:
            return
        picture = None if item.image is None else annotate(item.image, assessment, decision)
        if kept and picture is not None:
            if self._spread is None:
                self._write(item.name, encode_jpeg(picture))
            else:
                self._spread.add((item.name, encode_jpeg(picture)))
        if shown:
            self._shown.add(ReportEntry(f"Image {item.name}", assessment, decision, picture))

    def finish(self) -> list[str]:
        """Write the pictures that were kept back; returns the names of all that are in the folder."""
        for name, jpeg in self._spread.kept() if self._spread is not None else []:
            self._write(name, jpeg)
        return self._written

    def entries(self) -> list[ReportEntry]:
        """What the report shows."""
        return self._shown.kept()

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
