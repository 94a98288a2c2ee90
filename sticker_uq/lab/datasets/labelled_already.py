# SPDX-License-Identifier: Apache-2.0
"""Which pictures of a pool are labelled already: those with the name or the pixels of a labelled picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath

from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.images import Picture
from sticker_uq.io.sources import SourceImage
from sticker_uq.lab.datasets.checking import pixel_digest
from sticker_uq.lab.datasets.consecutive import plain_stem


class LabelledAlready:
    """The labelled pictures of which a pool is left without.

    A name that is only a number, as of frames of a recording and of a data set's own files, says nothing; pixels then decide.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._pixels: set[bytes] = set()

    def add(self, item: LabelledImage, image: Picture) -> None:
        """Note ``item`` with the pixels ``image`` (H, W, 3) BGR as labelled."""
        name = _name(item.source_name or item.path.name)
        if name:
            self._names.add(name)
        self._pixels.add(pixel_digest(image))

    def has(self, item: SourceImage) -> bool:
        """Whether the picture ``item`` of a pool is labelled."""
        return _name(item.name) in self._names or (
            item.image is not None and pixel_digest(item.image) in self._pixels
        )


def unlabelled(
    source: Iterable[SourceImage], labelled: LabelledAlready, skipped: Callable[[], None]
) -> Iterator[SourceImage]:
    """The pictures of a pool that are not ``labelled``; calls ``skipped`` for each of the others."""
    for item in source:
        if labelled.has(item):
            skipped()
        else:
            yield item


def _name(name: str) -> str:
    stem = plain_stem(PurePosixPath(name))
    return "" if stem.isdecimal() else stem
