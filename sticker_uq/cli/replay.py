# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq replay``: judges recorded or stored images without a robot."""

from __future__ import annotations

import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli import option, options
from sticker_uq.cli.terminal import figures, make_progress_bar, output, tell_of_source
from sticker_uq.evaluation.executors import executor
from sticker_uq.evaluation.replay.assessing import Assessed, one_by_one, process_count, side_by_side
from sticker_uq.evaluation.replay.comparison import (
    CandidateComparison,
    Contender,
    Differences,
    LiveComparison,
    live_scenes,
)
from sticker_uq.evaluation.replay.replay import Replay, ReplaySummary
from sticker_uq.evaluation.replay.tables import TableFormat, cell_of, laptops_of
from sticker_uq.evaluation.reporting.replay_report import write_replay
from sticker_uq.gate import Policy
from sticker_uq.io.bags import Bag
from sticker_uq.io.coco import ANNOTATIONS, LabelledImage, read_annotations
from sticker_uq.io.files import check_result_folder, remove_earlier_result, undone_unless_finished
from sticker_uq.io.share import environment, share_folder
from sticker_uq.io.sources import ImageSource, SourceImage, is_recording, open_source
from sticker_uq.messages import printable
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.dil.settings import Technique
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput, SceneAssessment, SceneDecision

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception

_FILES = (".*.tmp", "*.parquet", "*.csv", "report.html", "summary.json", "pictures/*")
"""What a replay leaves in its folder."""


@dataclass(frozen=True)
class ReplayOutcome:
    """``compared``: comparison with the live scenes, "" without ``verify``; ``differing``: a line for some of those that
    differ; ``differences``: the comparison with the candidate, None without one.
    """

    summary: ReplaySummary
    agrees: bool
    compared: str = ""
    differing: tuple[str, ...] = ()
    differences: Differences | None = None


@dataclass(frozen=True)
class ReplayJob:
    """One source; ``processes`` that share its images, 0: automatic."""

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
    camera: str = ""
    candidate: Contender | None = None

    @property
    def rounds(self) -> int:
        """How often each image is assessed: twice for a candidate with other settings."""
        return 1 if self.candidate is None or self.candidate.settings == self.settings else 2

    def open(self) -> ImageSource:
        """The images. Raises InvalidInput without any, for unreadable labels, for ``verify`` without a recording."""
        images = open_source(self.source, self.topic, self.camera)
        self.read_labels()
        if self.verify and not images.topic:
            raise InvalidInput(f"--verify: {self.source} is not a recording of a cell")
        return images

    def remove(self) -> None:
        """Remove what an earlier or interrupted replay left in ``out``."""
        remove_earlier_result(self.out, _FILES)

    def read_labels(self) -> Mapping[str, LabelledImage] | None:
        """The labels of the images by their names without suffix; None without any. Raises InvalidInput as read_annotations."""
        if self.labels is None:
            return None
        items: dict[str, LabelledImage] = {}
        for item in read_annotations(self.labels):
            if (other := items.setdefault(item.path.stem, item)) is not item:
                raise InvalidInput(
                    f"{self.labels / ANNOTATIONS}: two images have the same file name, {other.path} and {item.path}: rename one"
                )
        return items

    def run(
        self,
        load: Callable[[PerceptionSettings], Perception] = load_perception,
        on_image: Callable[[], None] = lambda: None,
    ) -> ReplayOutcome:
        """``on_image`` is called after every image. Raises what :meth:`open` and :meth:`Replay.run` raise."""
        images = self.open()
        live = live_scenes(Bag(self.source), images.topic) if self.verify else None
        candidate = None if self.candidate is None else CandidateComparison(self.candidate, self.settings)
        processes = self.processes or process_count(self.settings, operator.length_hint(images, 0))

        def assess(settings: PerceptionSettings) -> Assessed:
            if processes == 1:
                return one_by_one(images, load(settings))
            return side_by_side(images, partial(load, settings), processes)

        def compare(item: SourceImage, assessment: SceneAssessment, decision: SceneDecision) -> None:
            on_image()
            if live is not None:
                live.add(assessment)
            if candidate is not None:
                candidate.add(item.name, assessment, decision)

        def differences() -> Differences | None:
            if candidate is None:
                return None
            for _, assessment in assess(candidate.candidate.settings) if candidate.assesses_again else ():
                on_image()
                candidate.add_again(assessment)
            return candidate.differences()

        replay = Replay(
            source=images,
            name=str(self.source),
            policy=self.policy,
            out=self.out,
            table_format=self.table_format,
            pictures=self.pictures,
            cell=cell_of(self.source),
            laptop_at=laptops_of(self.source) if images.topic else lambda _: "",
            processes=processes,
            environment=environment(self.settings.model_dump(), *_PACKAGES),
            labels=self.read_labels(),
        )
        result = replay.run(assess(self.settings), compare, differences)
        summary = write_replay(result, self.policy, self.out)
        outcome = ReplayOutcome(summary, True) if live is None else _compare_live(summary, live)
        return replace(outcome, differences=result.differences)


_kept_perception = cache(load_perception)
"""A process that replays several sources loads it once."""


def run_numbered(numbered: tuple[int, ReplayJob]) -> tuple[int, ReplayOutcome | str]:
    """Run one of several jobs; its number, and its result or why there is none."""
    number, job = numbered
    try:
        with undone_unless_finished(job.remove):
            return number, job.run(_kept_perception)
    except (InvalidInput, OSError) as error:
        return number, " ".join(str(error).split())


def _remove_unfinished(jobs: Sequence[ReplayJob], finished: Container[int]) -> None:
    for number, job in enumerate(jobs):
        if number not in finished:
            with suppress(InvalidInput):  # somebody else's file is in the folder
                job.remove()


def _compare_live(summary: ReplaySummary, live: LiveComparison) -> ReplayOutcome:
    lines = live.describe_differences()
    if live.different > len(lines):
        lines.append(f"... and {live.different - len(lines)} more")
    compared = (
        f"{live.identical} of {live.count} live assessments of {live.topic} repeated byte for byte, "
        f"{live.different} differ, {live.missing_count} without a recorded image"
    )
    return ReplayOutcome(summary, live.agrees, compared, tuple(lines))


_PACKAGES = ("torch", "torchvision", "numpy", "opencv-python-headless", "hdbscan")
MANY = 1_000_000
"""Number of images of a replay, where it is unknown."""


@options.settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def command(
    settings: PerceptionSettings,
    params: Path | None,
    bundle: Bundle | None,
    sources: list[Path] = typer.Argument(
        ...,
        metavar="SOURCE...",
        help="rosbag2 recordings (folder, .mcap, .db3), folders of pictures, pictures, or videos.",
    ),
    out: Path = options.output_folder(
        Path("out/replay"),
        "Folder for the results, new or empty; with one folder for each of several sources.",
    ),
    overwrite: options.Overwrite = False,
    topic: options.Topic = None,
    table_format: TableFormat = option("parquet", "Format of the two tables.", "--format"),
    pictures: str = option(
        "all", "Annotated pictures to keep: all, none, or a number.", metavar="all|none|N"
    ),
    policy: Path | None = option(None, "Policy file instead of config/limits.yaml or the bundle's."),
    labels: Path | None = option(
        None, "COCO folder with labels of the same images: what is decided is counted against them."
    ),
    saliency: Technique | None = option(
        None,
        "Method of the saliency in the report, and of DiL: as --dil-technique, also over that of a bundle.",
    ),
    camera: str = option(
        "",
        "Frame of the camera that took the pictures or videos: a policy may be for one. Recordings name theirs.",
    ),
    compare: Path | None = option(
        None,
        "Bundle, or policy file, that judges the same images too: what it decides differently is counted, in the report "
        "and in the table candidate.",
        metavar="BUNDLE|POLICY",
    ),
    jobs: int = option(
        0,
        "Parallel processes, one per source, or sharing the images of one source; 0: automatic.",
        min=0,
        max=256,
    ),
    ray_address: options.RayAddress = "",
    verify: bool = option(
        False, "Compare with the recorded scenes of the cell; exit status 1 if one differs.", "--verify"
    ),
    as_json: bool = option(
        False, "Print summary.json of each source in one line instead of tables.", "--json"
    ),
) -> None:
    """Assess and judge every image of SOURCE with the same code as the cell.

    Writes tables of images, objects and limits (which one blocked how often), annotated pictures, report.html and summary.json.
    Exit status 1: no image of a source can be read, or a recording has lost some. Several sources are recordings of cells, each
    named after the folder that it lies in; one that cannot be read does not stop the others.
    """
    if saliency is not None:
        settings = settings.model_copy(update={"dil_technique": saliency})
    limits = policy_of(policy or (bundle.policy if bundle is not None else None), params)
    most = _pictures(pictures)
    several = len(sources) > 1
    spread = several or bool(ray_address)
    folders = _folders(sources, out) if several else [out]
    for folder in folders:
        check_result_folder(folder, _FILES, f"--out {folder}", overwrite)
    anywhere = Path.absolute if ray_address else Path  # another machine has another working folder
    own = settings.with_absolute_paths() if ray_address else settings
    candidate = None if compare is None else _candidate(compare, own)
    for judging in (limits, *(() if candidate is None else (candidate.policy,))):
        made_for = "" if judging.validity is None else judging.validity.camera
        if made_for and not camera and not all(map(is_recording, sources)):
            typer.echo(
                f"warning: the policy is for camera {made_for}, all else is blocked: name it with --camera",
                err=True,
            )
    replays = [
        ReplayJob(
            source=anywhere(source),
            topic=topic,
            settings=own,
            policy=limits,
            out=anywhere(folder),
            table_format=table_format,
            pictures=most,
            verify=verify,
            labels=labels if labels is None else anywhere(labels),
            camera=camera,
            processes=1 if spread else jobs,
            candidate=candidate,
        )
        for source, folder in zip(sources, folders, strict=True)
    ]
    failed: dict[Path, str] = {}
    if spread:
        at_once = jobs or process_count(settings, MANY)
        ran, failed = _run_spread(replays, at_once, ray_address)
    else:
        ran = [(replays[0], _run_here(replays[0]))]
    for replay, result in ran:
        _tell(replay, result, as_json, several)
    for source, error in failed.items():
        typer.echo(printable(f"failed: {source}: {error}"), err=True)
    if len({(one.summary.model_hash, one.summary.settings_hash) for _, one in ran}) > 1:
        typer.echo("machines differ in weights or device: their summaries have different hashes", err=True)
        failed = failed or {out: "machines differ"}
    whole = all(one.summary.failed < one.summary.images and not one.summary.lost for _, one in ran)
    raise typer.Exit(0 if whole and not failed and all(result.agrees for _, result in ran) else 1)


def _run_here(job: ReplayJob) -> ReplayOutcome:
    with make_progress_bar() as bar, undone_unless_finished(job.remove):
        images = job.open()
        job.remove()
        total = job.rounds * operator.length_hint(images, 0) or None
        task = bar.add_task("loading the detector", total=total)
        return job.run(load_perception, partial(bar.update, task, advance=1, description="images"))


def _run_spread(
    jobs: Sequence[ReplayJob], at_once: int, ray_address: str
) -> tuple[list[tuple[ReplayJob, ReplayOutcome]], dict[Path, str]]:
    """The jobs that ran, and why the others did not, by their sources; raises InvalidInput where the only one did not."""
    several = len(jobs) > 1
    for job in jobs:  # reports invalid input before the first process starts
        if not several or not job.source.exists():
            job.open()
    jobs[0].read_labels()
    for job in jobs:
        job.remove()
    found: dict[int, ReplayOutcome | str] = {}
    undone = undone_unless_finished(partial(_remove_unfinished, jobs, found))
    with undone, make_progress_bar() as bar, executor(min(at_once, len(jobs)), ray_address) as execute:
        numbered = execute(run_numbered, enumerate(jobs))
        found.update(bar.track(numbered, len(jobs), description="sources"))
    failed = {jobs[i].source: one for i, one in found.items() if isinstance(one, str)}
    if failed and not several:
        raise InvalidInput(*failed.values())
    return [(jobs[i], one) for i, one in sorted(found.items()) if not isinstance(one, str)], failed


def _tell(job: ReplayJob, result: ReplayOutcome, as_json: bool, several: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(result.summary)))
    else:
        if several:
            typer.echo(f"{job.source}:")
        _print_summary(result.summary, job.out)
    tell_of_source(job.source, result.summary.remarks, result.summary.lost)
    for line in result.differing:
        typer.echo(line, err=True)
    if result.compared:
        typer.echo(result.compared, err=as_json)
    if result.differences is not None:
        typer.echo(result.differences.summary(), err=as_json)
    if result.summary.failed == result.summary.images:
        typer.echo(f"{job.source}: none of the images could be assessed; their rows say why", err=True)


def _candidate(path: Path, settings: PerceptionSettings) -> Contender:
    """What ``--compare`` names: a bundle on this machine, or a policy for the assessments of the replay."""
    if path.is_dir():
        bundle = Bundle.load(path)
        return Contender(str(path), bundle.settings(settings), Policy.load(bundle.policy))
    return Contender(str(path), settings, Policy.load(path))


def _folders(sources: list[Path], out: Path) -> list[Path]:
    """A folder in ``out`` for each source, named after it, and below that of its cell where names are the same."""
    names = [source.stem if source.is_file() else source.resolve().name for source in sources]
    if len(set(names)) < len(names):
        names = [f"{cell_of(source)}/{name}" for source, name in zip(sources, names, strict=True)]
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInput(
                f"{count} sources are named {name!r}: expected different names, or one replay each"
            )
    return [out / name for name in names]


def policy_of(file: Path | None, params: Path | None) -> Policy:
    """The policy of ``--policy``, else that of the supervisor in the parameter file, else config/limits.yaml.

    Raises InvalidInput for a file that cannot be used.
    """
    given = options.supervisor_parameters(params)
    return Policy.load(file or given.get("policy") or share_folder() / "config" / "limits.yaml")


def _pictures(text: str) -> int | None:
    if text == "all":
        return None
    if text != "none" and not re.fullmatch(r"\d{1,6}", text):
        raise InvalidInput(f"--pictures {text}: expected all, none or a number")
    return 0 if text == "none" else int(text)


def _print_summary(summary: ReplaySummary, out: Path) -> None:
    rows: dict[str, object] = {
        "images": summary.images,
        **({} if summary.declared is None else {"images that the recording declares": summary.declared}),
        "failed": summary.failed,
        "objects": summary.objects,
        "detected in too few passes": summary.unstable,
        "stickers that may be removed": summary.removable,
        **{f"scenes judged {outcome}": count for outcome, count in summary.outcomes.items()},
        **({} if summary.labelled is None else summary.labelled.rows()),
        **{f"objections by {name}": count for name, count in summary.objections.items()},
        **{f"{stage}, ms": f"{ms:.1f}" for stage, ms in summary.timings_ms.items()},
        "images per second": f"{summary.images / summary.seconds:.1f}",
        **(
            {}  # of one image it cannot be told
            if math.isnan(summary.model_busy)
            else {"model busy": f"{summary.model_busy:.1%} of the time, {summary.processes} process(es)"}
        ),
    }
    output().print(figures(("", ""), rows.items(), show_header=False, box=None, pad_edge=False))
    typer.echo(f"report: {out / 'report.html'}")
