# SPDX-License-Identifier: Apache-2.0
"""The command ``replay`` as a picklable job for another process."""

from __future__ import annotations

import json
import operator
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sticker_uq.evaluation.replay.assessing import (
    Assessed,
    one_by_one,
    process_count,
    side_by_side,
)
from sticker_uq.evaluation.replay.candidate import Candidate, Differences, Judgement
from sticker_uq.evaluation.replay.cells import cell_of, laptops_of
from sticker_uq.evaluation.replay.comparison import Comparison, live_scenes
from sticker_uq.evaluation.replay.replay import ReplaySummary, replay
from sticker_uq.evaluation.replay.tables import TableFormat
from sticker_uq.evaluation.reporting.replay_report import write_replay
from sticker_uq.gate import Policy, judge
from sticker_uq.io.bags import Bag
from sticker_uq.io.coco import LabelledImage, read_annotations
from sticker_uq.io.outputs import remove_earlier_result
from sticker_uq.io.reading import MOST_JSON, read_text
from sticker_uq.io.sources import ImageSource, SourceImage, open_source
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput, SceneAssessment, SceneDecision

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception


@dataclass(frozen=True)
class ReplayOutcome:
    """Result of a replay. ``compared``: comparison with the live scenes, "" without ``verify``; ``differing``: a line for some
    of those that differ; ``differences``: the comparison with the candidate, None without one.
    """

    summary: ReplaySummary
    agrees: bool
    compared: str = ""
    differing: tuple[str, ...] = ()
    differences: Differences | None = None


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
    candidate: Candidate | None = None

    @property
    def rounds(self) -> int:
        """How often each image is assessed: twice for a candidate with other settings."""
        return 1 if self.candidate is None or self.candidate.settings == self.settings else 2

    def open(self) -> ImageSource:
        """The images of a replay job. Raises InvalidInput without images, for unreadable labels,
        for ``verify`` without a recording.
        """
        images = open_source(self.source, self.topic)
        self.labelled()
        if self.verify and not images.topic:
            raise InvalidInput(f"--verify: {self.source} is not a recording of a cell")
        return images

    def finished(self) -> dict[str, Any] | None:
        """The summary of this replay where ``out`` has it already; what an interrupted one left there is removed.

        Raises InvalidInput for a replay by another policy or other settings, and for files of anything else.
        """
        file = self.out / "summary.json"
        if not file.is_file():
            if self.out.is_dir():
                remove_earlier_result(self.out, (".*.tmp", "*.parquet", "*.csv", "report.html", "pictures/*"))
            return None
        try:
            told: dict[str, Any] = json.loads(read_text(file, MOST_JSON))
            same = (
                told["policy_hash"] == self.policy.hash
                and _settings(self.settings).items() <= told["environment"].items()
                and {"source", "images", "failed", "remarks", "lost"} <= told.keys()
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            same = False
        if not same:
            raise InvalidInput(f"{self.out}: of another policy or other settings; choose another folder")
        return told

    def labelled(self) -> Mapping[str, LabelledImage] | None:
        """The labels of the images by their names without suffix; None without any. Raises InvalidInput as read_annotations."""
        if self.labels is None:
            return None
        return {item.path.stem: item for item in read_annotations(self.labels)}

    def run(
        self,
        load: Callable[[PerceptionSettings], Perception] = load_perception,
        on_image: Callable[[], None] = lambda: None,
    ) -> ReplayOutcome:
        """Run the replay job; ``on_image`` is called after every image. Raises what :meth:`open` and :func:`replay` raise."""
        images = self.open()
        live = live_scenes(Bag(self.source), images.topic) if self.verify else None
        count = operator.length_hint(images, 0)
        processes = self.processes or process_count(self.settings, count)
        judged: list[tuple[str, Judgement]] = []
        same: list[Judgement] = []  # the candidate's, where it assesses images in the same way
        found: Differences | None = None

        def assessed(settings: PerceptionSettings) -> Assessed:
            if processes == 1:
                return one_by_one(images, load(settings))
            return side_by_side(images, partial(load, settings), processes)

        def seen(item: SourceImage, assessment: SceneAssessment, decision: SceneDecision) -> None:
            on_image()
            if live is not None:
                live.add(assessment)
            if self.candidate is not None:
                judged.append((item.name, Judgement.of(assessment, decision)))
                if self.rounds == 1:
                    same.append(Judgement.of(assessment, judge(assessment, self.candidate.policy)))

        def judged_again(candidate: Candidate) -> Iterator[Judgement]:
            for _, assessment in assessed(candidate.settings):
                on_image()
                yield Judgement.of(assessment, judge(assessment, candidate.policy))

        def differences() -> Differences | None:
            nonlocal found
            if self.candidate is not None:
                found = Differences(self.candidate)
                others = same if self.rounds == 1 else judged_again(self.candidate)
                for (name, own), other in zip(judged, others, strict=True):
                    found.add(name, own, other)
            return found

        result = replay(
            images,
            str(self.source),
            assessed(self.settings),
            self.policy,
            self.out,
            table_format=self.table_format,
            pictures=self.pictures,
            cell=cell_of(self.source),
            laptop_at=laptops_of(self.source) if images.topic else lambda _: "",
            processes=processes,
            environment=_environment(self.settings),
            labels=self.labelled(),
            on_image=seen,
            differences=differences,
        )
        summary = write_replay(result, self.policy, self.out)
        outcome = ReplayOutcome(summary, True) if live is None else _compared(summary, live)
        return replace(outcome, differences=found)


_kept_perception = cache(load_perception)
"""A process that replays several sources loads it once."""


def run_numbered(numbered: tuple[int, ReplayJob]) -> tuple[int, ReplayOutcome | str]:
    """Run one of several replay jobs; its number, and its result or why there is none."""
    number, job = numbered
    try:
        return number, job.run(_kept_perception)
    except (InvalidInput, OSError) as error:
        return number, " ".join(str(error).split())


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
        **_settings(settings),
    }


def _settings(settings: PerceptionSettings) -> dict[str, str]:
    return {f"setting {name}": str(value) for name, value in settings.model_dump().items()}


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
