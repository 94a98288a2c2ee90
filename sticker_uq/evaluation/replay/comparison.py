# SPDX-License-Identifier: Apache-2.0
"""Whether a replay says what the live cell said, byte for byte."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from sticker_uq.io.bags import Bag
from sticker_uq.io.messages import scene_from_msg
from sticker_uq.io.sources import IMAGE_TYPES
from sticker_uq.io.topics import scene_topic_of
from sticker_uq.scene import InvalidInput, SceneAssessment, to_plain

SCENE_TYPE = "sticker_uq_msgs/msg/SceneAssessment"
MOST_EXAMPLES = 10
"""So many differences are told in words."""
_DIGEST_BYTES = 16


class Comparison:
    """The assessments that a live cell published on ``topic``, against those of a replay.

    ``scenes`` reads the live ones; of several with the same stamp the last counts. Of each only stamp and digest are kept, some
    25 bytes, so that a recording of a day fits into memory; :meth:`differing` reads them again.

    ``stamps``: those of the live assessments (N,) ns, ascending; ``identical``: how many the replay repeated byte for byte;
    ``different``: how many it did not.
    """

    def __init__(self, topic: str, scenes: Callable[[], Iterable[SceneAssessment]]) -> None:
        self.topic = topic
        self._scenes = scenes
        stamps, digests = array("q"), bytearray()
        for scene in scenes():
            stamps.append(scene.stamp_ns)
            digests += _digest(scene)
        order = np.argsort(np.array(stamps, np.int64), kind="stable")
        ordered = np.array(stamps, np.int64)[order]
        last = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]
        self.stamps = ordered[last]
        self._digests = np.frombuffer(bytes(digests), np.uint8).reshape(-1, _DIGEST_BYTES)[order[last]]
        self._seen = np.zeros(len(self.stamps), bool)
        self._examples: list[SceneAssessment] = []
        self.identical = self.different = 0

    def add(self, replayed: SceneAssessment) -> None:
        """Compare one assessment of the replay with the live cell's. Images that the live cell skipped count for nothing."""
        place = int(np.searchsorted(self.stamps, replayed.stamp_ns))
        if place == len(self.stamps) or self.stamps[place] != replayed.stamp_ns:
            return
        self._seen[place] = True
        if self._digests[place].tobytes() == _digest(replayed):
            self.identical += 1
            return
        self.different += 1
        if len(self._examples) < MOST_EXAMPLES:
            self._examples.append(replayed)

    @property
    def count(self) -> int:
        """Live assessments with different stamps that a replay is compared with."""
        return len(self.stamps)

    @property
    def missing(self) -> int:
        """Live assessments whose image the replay has not seen (yet)."""
        return int(np.count_nonzero(~self._seen))

    @property
    def agrees(self) -> bool:
        """Whether something of replay and live cell was compared and nothing differs."""
        return self.identical > 0 and not self.different

    def differing(self) -> list[str]:
        """What differs between replay and live cell, one line for each of the first ``MOST_EXAMPLES`` that do."""
        wanted = {replayed.stamp_ns for replayed in self._examples}
        live = (
            {scene.stamp_ns: scene for scene in self._scenes() if scene.stamp_ns in wanted} if wanted else {}
        )
        return [
            f"image at {replayed.stamp_ns} ns: {_difference(live[replayed.stamp_ns], replayed)}"
            for replayed in self._examples
        ]


def live_scenes(bag: Bag, image_topic: str) -> Comparison:
    """The live cell's assessments in `bag`, to be compared with a replay of the images of `image_topic`.

    Where several cameras were recorded, the scenes beside the images count, see
    :func:`sticker_uq.io.topics.scene_topic_of`. Raises InvalidInput when there are none, or several of which none is
    nearer than the others.
    """
    topics = bag.topics_of(SCENE_TYPE)
    if len(topics) > 1:
        images = [topic for topic, kind in bag.topics.items() if kind in IMAGE_TYPES]
        topics = scene_topic_of(image_topic, topics, images) or topics
    if len(topics) != 1:
        raise InvalidInput(
            f"{bag.path}: expected one topic of {SCENE_TYPE}, found {', '.join(topics) or 'none'}"
        )

    def scenes() -> Iterator[SceneAssessment]:
        for item in bag.messages(topics[0]):
            if item.message is not None:
                yield scene_from_msg(item.message)

    return Comparison(topics[0], scenes)


def _digest(scene: SceneAssessment) -> bytes:
    return hashlib.blake2b(scene.to_bytes(), digest_size=_DIGEST_BYTES).digest()


def _difference(live: SceneAssessment, replayed: SceneAssessment) -> str:
    """The first thing in which two assessments differ, in words."""
    a, b = (to_plain(scene, leave_out=("timings", "saliency")) for scene in (live, replayed))
    # What made an assessment explains everything after it, so that is looked at first.
    order = [
        "model",
        "model_hash",
        "device",
        "precision",
        "settings_hash",
        "panel_hash",
        "image_size",
        "image_digest",
        "status",
        "status_text",
    ]
    for name in [*order, *(n for n in a if n not in order)]:
        if json.dumps(a[name]) != json.dumps(b[name]):  # as text, because NaN equals nothing
            short = isinstance(a[name], str | int | float)
            return f"{name} was {a[name]}, is {b[name]}" if short else f"other {name}"
    return "no difference in any field"
