# SPDX-License-Identifier: Apache-2.0
"""Labelled images, from a COCO folder or from a recording with annotations."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sticker_uq.io.bags import Bag
from sticker_uq.io.coco import ANNOTATIONS, LabelledImage, read_annotations, read_coco
from sticker_uq.io.messages import expect_fields, stamp_to_ns
from sticker_uq.io.sources import ImageSource, SourceImage, is_recording, open_source
from sticker_uq.scene import InvalidInput

_WORKPIECE = "sticker_uq_msgs/msg/Workpiece"
_DONE = "sticker_uq_msgs/msg/WorkpieceDone"


class LabelledSource(ImageSource):
    """The labelled images of a COCO folder or of a recording, in the order of their annotations or of the recording.

    A COCO folder holds ``annotations.json``. A recording (rosbag2 folder) is labelled by an ``annotations.json`` in the same
    folder whose file names are the numbers of its images, as `sticker-uq replay` counts them ("000042.jpg"); images that it
    does not name are left out. ``workpieces`` are the (time in ns, laptop) pairs that a recording announces, in order of
    time; empty when it announces none. The field ``workpiece_id`` of an image in the annotations names its laptop too.
    Raises :class:`InvalidInput` for a source that does not match this description, for an image of another size than labelled,
    and for a recording that has lost images, whose numbers may be those of others.
    """

    continuous = False
    recorded = False
    workpieces: tuple[tuple[int, str], ...] = ()

    def __init__(self, path: Path, topic: str | None = None) -> None:
        self.path = path
        self._images: ImageSource | None = None
        if is_recording(path):
            self._images = open_source(path, topic)
            self._check_whole(self._images)
            self.recorded, self.remarks = True, self._images.remarks
            self.workpieces = read_workpieces(path)
            annotated = read_annotations(path)
        else:
            annotated = read_coco(path)
        self.items = {item.path.stem: item for item in annotated}
        if len(self.items) != len(annotated):
            raise InvalidInput(f"{path / ANNOTATIONS}: two images have the same file name")

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[SourceImage]:
        if self._images is None:
            for name, item in self.items.items():
                image = next(iter(open_source(item.path)))
                yield self._of_size(SourceImage(image.image, 0, "", name, image.error))
            return
        found = 0
        for image in self._images:
            if image.name in self.items:
                found += 1
                yield self._of_size(image)
        self._check_whole(self._images)
        if found != len(self.items):
            raise InvalidInput(
                f"{self.path / ANNOTATIONS}: names {len(self.items)} images, but the recording has {found} of them"
            )

    def _of_size(self, image: SourceImage) -> SourceImage:
        item = self.items[image.name]
        if image.image is not None and (seen := image.image.shape[:2]) != (item.height, item.width):
            raise InvalidInput(
                f"{self.path}: image {image.name} is {seen[1]}x{seen[0]} px, expected {item.width}x{item.height} as labelled"
            )
        return image

    def _check_whole(self, images: ImageSource) -> None:
        if images.lost:
            raise InvalidInput(
                f"{self.path}: images are lost, and {ANNOTATIONS} names images by their number: {images.lost}; make it whole "
                "again, or save what is left (mcap recover, sqlite3 .recover) and label that"
            )

    def workpiece_at(self, stamp_ns: int) -> str:
        """The laptop that a recording says was there at ``stamp_ns``, unique over all sources; "" if it does not say."""
        before = bisect_right(self.workpieces, stamp_ns, key=lambda announced: announced[0])
        return f"{self.workpieces[before - 1][1]} of {self.path}" if before else ""

    def workpiece_of(self, item: LabelledImage, stamp_ns: int) -> str:
        """The laptop on the image ``item``, seen at ``stamp_ns``, unique over all sources; "" if unknown."""
        return f"{item.workpiece_id} of {self.path}" if item.workpiece_id else self.workpiece_at(stamp_ns)

    def fingerprint(self, digests: Sequence[str]) -> str:
        """SHA-256 over the ``digests`` of the images, in order, and their labels, hex."""
        whole = hashlib.sha256()
        for item, digest in zip(self.items.values(), digests, strict=True):
            whole.update(digest.encode() + item.boxes.tobytes() + item.labels.tobytes())
        return whole.hexdigest()


def read_workpieces(path: Path, departures: bool = False) -> tuple[tuple[int, str], ...]:
    """The (time in ns, laptop) pairs of a recording in order of time; empty when the topic was not recorded.

    Laptops with the same name are distinguished by their order. With ``departures`` the laptop is "" from the image after the
    one by which it was declared done. Raises :class:`InvalidInput` when the recording cannot be read.
    """
    bag = Bag(path)
    turns: list[tuple[int, str]] = []
    announced = sorted((ns, message.id) for ns, message in _read_stamped(bag, _WORKPIECE) if message.id)
    for stamp_ns, name in announced:
        if not turns or turns[-1][1] != name:
            turns.append((stamp_ns, name))
    left: dict[int, int] = {}
    for stamp_ns, message in _read_stamped(bag, _DONE) if departures else ():
        turn = bisect_right(turns, stamp_ns, key=lambda arrival: arrival[0]) - 1
        if turn >= 0 and turns[turn][1] == message.workpiece_id:
            left[turn] = stamp_ns + 1
    named = [(stamp_ns, f"{number} ({name})") for number, (stamp_ns, name) in enumerate(turns, 1)]
    return tuple(sorted([*named, *((stamp_ns, "") for stamp_ns in left.values())]))


def _read_stamped(bag: Bag, kind: str) -> Iterator[tuple[int, Any]]:
    for topic in bag.topics_of(kind):
        for item in bag.messages(topic):
            with expect_fields(f"{bag.path}: {topic}"):
                if item.message is not None:
                    yield stamp_to_ns(item.message.header.stamp), item.message
