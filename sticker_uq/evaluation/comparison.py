"""Whether a replay says what the live cell said, byte for byte."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from sticker_uq.datasets.bags import Bag
from sticker_uq.datasets.messages import scene_from_msg
from sticker_uq.datasets.sources import IMAGE_TYPES
from sticker_uq.datasets.topics import scene_topic_of
from sticker_uq.scene import InvalidInput, SceneAssessment, to_plain

SCENE_TYPE = "sticker_uq_msgs/msg/SceneAssessment"


@dataclass
class Comparison:
    """The assessments that a live cell published, against those of a replay.

    ``live`` maps the stamp of an image to its live assessment; ``identical``: how many the replay repeated byte for byte;
    ``differing``: what differs, one line for each; ``missing``: live assessments whose image the replay has not seen (yet).
    """

    topic: str
    live: dict[int, SceneAssessment]
    identical: int = 0
    differing: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def add(self, replayed: SceneAssessment) -> None:
        """Compare one assessment of the replay. Images that the live cell skipped count for nothing."""
        live = self.live.get(replayed.stamp_ns)
        if live is None:
            return
        self.seen.add(replayed.stamp_ns)
        if live.to_bytes() == replayed.to_bytes():
            self.identical += 1
        else:
            self.differing.append(f"image at {replayed.stamp_ns} ns: {_difference(live, replayed)}")

    @property
    def missing(self) -> int:
        """Live assessments whose image the replay has not seen."""
        return len(self.live) - len(self.seen)

    @property
    def agrees(self) -> bool:
        """Whether something was compared and nothing differs."""
        return self.identical > 0 and not self.differing


def live_scenes(bag: Bag, image_topic: str) -> Comparison:
    """The assessments recorded in `bag`, to be compared with those of the images of `image_topic`.

    Where several cameras were recorded, the scenes beside the images count, see
    :func:`sticker_uq.datasets.topics.scene_topic_of`. Raises InvalidInput when there are none, or several of which none is
    nearer than the others.
    """
    topics = [topic for topic, kind in bag.topics.items() if kind == SCENE_TYPE]
    if len(topics) > 1:
        images = [topic for topic, kind in bag.topics.items() if kind in IMAGE_TYPES]
        topics = scene_topic_of(image_topic, topics, images) or topics
    if len(topics) != 1:
        raise InvalidInput(
            f"{bag.path}: expected one topic of {SCENE_TYPE}, found {', '.join(topics) or 'none'}"
        )
    live = {}
    for item in bag.messages(topics[0]):
        if item.message is not None:
            scene = scene_from_msg(item.message)
            live[scene.stamp_ns] = scene
    return Comparison(topics[0], live)


def _difference(live: SceneAssessment, replayed: SceneAssessment) -> str:
    """The first thing in which two assessments differ, in words."""
    a, b = (to_plain(scene, leave_out=("timings", "saliency")) for scene in (live, replayed))
    # What made an assessment explains everything after it, so that is looked at first.
    order = [
        "model",
        "model_hash",
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
