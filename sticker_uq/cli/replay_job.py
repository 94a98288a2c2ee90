# SPDX-License-Identifier: Apache-2.0
"""The command ``replay`` as a picklable job for another process."""

from __future__ import annotations

import operator
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from sticker_uq.evaluation.replay.assessing import (
    Assessor,
    one_by_one,
    process_count,
    side_by_side,
)
from sticker_uq.evaluation.replay.comparison import Comparison, live_scenes
from sticker_uq.evaluation.replay.replay import ReplaySummary, replay
from sticker_uq.evaluation.replay.tables import TableFormat
from sticker_uq.gate import Policy
from sticker_uq.io.bags import Bag
from sticker_uq.io.coco import LabelledImage, read_annotations
from sticker_uq.io.sources import ImageSource, open_source
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput, SceneAssessment


@dataclass(frozen=True)
class ReplayOutcome:
    """Result of a replay. ``compared``: comparison with the live scenes, "" without ``verify``; ``differing``: a line for some
    of those that differ.
    """

    summary: ReplaySummary
    agrees: bool
    compared: str = ""
    differing: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReplayJob:
    """A job of the command ``replay``: one source; ``processes`` that share its images, 0: automatic."""

    source: Path
    topic: str | None
    settings: PerceptionSettings
    policy: Policy
    out: Path
    table_format: TableFormat
    pictures: int | None
    verify: bool
    processes: int
    labels: Path | None = None

    def open(self) -> ImageSource:
        """The images of a replay job. Raises InvalidInput without images, for unreadable labels,
        for ``verify`` without a recording.
        """
        images = open_source(self.source, self.topic)
        self.labelled()
        if self.verify and not images.topic:
            raise InvalidInput(f"--verify: {self.source} is not a recording of a cell")
        return images

    def labelled(self) -> Mapping[str, LabelledImage] | None:
        """The labels of the images by their names without suffix; None without any. Raises InvalidInput as read_annotations."""
        if self.labels is None:
            return None
        return {item.path.stem: item for item in read_annotations(self.labels)}

    def run(
        self,
        load: Callable[[PerceptionSettings], Assessor] = load_perception,
        on_image: Callable[[], None] = lambda: None,
    ) -> ReplayOutcome:
        """Run the replay job; ``on_image`` is called after every image. Raises what :meth:`open` and :func:`replay` raise."""
        images = self.open()
        live = live_scenes(Bag(self.source), images.topic) if self.verify else None
        count = operator.length_hint(images, 0)
        processes = self.processes or process_count(self.settings, count)
        if processes == 1:
            assessed = one_by_one(images, load(self.settings))
        else:
            assessed = side_by_side(images, partial(load, self.settings), processes)

        def seen(assessment: SceneAssessment) -> None:
            on_image()
            if live is not None:
                live.add(assessment)

        summary = replay(
            images,
            str(self.source),
            assessed,
            self.policy,
            self.out,
            table_format=self.table_format,
            pictures=self.pictures,
            processes=processes,
            environment=_environment(self.settings),
            labels=self.labelled(),
            on_image=seen,
        )
        return ReplayOutcome(summary, True) if live is None else _compared(summary, live)


def run_numbered(numbered: tuple[int, ReplayJob]) -> tuple[int, ReplayOutcome]:
    """Run one of several replay jobs; its number and result. Raises what :meth:`ReplayJob.run` raises."""
    number, job = numbered
    return number, job.run()


def _compared(summary: ReplaySummary, live: Comparison) -> ReplayOutcome:
    """The outcome with the comparison of the replay with the live scenes."""
    lines = live.differing()
    if live.different > len(lines):
        lines.append(f"... and {live.different - len(lines)} more")
    compared = (
        f"{live.identical} of {live.count} live assessments of {live.topic} repeated byte for byte, "
        f"{live.different} differ, {live.missing} without a recorded image"
    )
    return ReplayOutcome(summary, live.agrees, compared, tuple(lines))


def _environment(settings: PerceptionSettings) -> dict[str, str]:
    packages = ("torch", "torchvision", "numpy", "opencv-python-headless", "hdbscan")
    versions = {name: _installed(name) for name in packages}
    return {
        "Python": platform.python_version(),
        "machine": platform.platform(),
        **{name: version for name, version in versions.items() if version},
        **{f"setting {name}": str(value) for name, value in settings.model_dump().items()},
    }


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
