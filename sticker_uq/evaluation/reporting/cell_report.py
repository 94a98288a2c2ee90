# SPDX-License-Identifier: Apache-2.0
"""The report of a recorded cell: laptop by laptop, what was seen, how sure, what was decided and why, and what happened."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from sticker_uq.evaluation.replay.recording import RecordedLaptop
from sticker_uq.evaluation.reporting import report_model
from sticker_uq.evaluation.reporting.annotated_images import annotate
from sticker_uq.evaluation.reporting.report_model import Course, ReportEntry, TimelineEvent, Tone
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy import LIMITED_METRICS
from sticker_uq.io.files import write_file
from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.sources import open_source
from sticker_uq.scene import Outcome, SceneAssessment

MOST_PICTURES = 8
"""Pictures of one laptop in the report."""
STAGES = ("decode_image", "encode", "sample", "detect", "dil", "novelty", "cluster", "total")
_TONES = {"permitted": Tone.GOOD, "removing": Tone.GOOD, "intervention": Tone.WARN, "fault": Tone.BAD}


def policy_limits(policy: Policy) -> dict[str, float]:
    return {
        "score": policy.min_probability,
        "detection_rate": policy.min_detection_rate,
        **{name: getattr(policy, f"max_{name}") for name in LIMITED_METRICS},
        "dil": policy.max_dil,
    }


def stage_times(laptops: Sequence[RecordedLaptop]) -> dict[str, float]:
    """Median milliseconds per image of every stage that the assessments name."""
    times: dict[str, list[float]] = {}
    for scene in (scene for laptop in laptops for scene in laptop.scenes):
        for stage, ms in scene.timings.items():
            times.setdefault(stage, []).append(ms)
    known = [stage for stage in STAGES if stage in times]
    return {stage: median(times[stage]) for stage in [*known, *sorted(set(times) - set(known))]}


def key_scenes(laptop: RecordedLaptop) -> list[tuple[str, SceneAssessment]]:
    """The scenes worth a picture, each with a title: the first, each question, each removal, the last."""
    if not laptop.scenes:
        return []
    wanted: dict[int, str] = {}
    decided = {d.decision_id: d for d in laptop.decisions.values()}
    for number, removal in enumerate(laptop.removals(), 1):
        if removal.decision_id in decided:
            word = "a person's word" if laptop.by_operator(removal) else "the policy"
            wanted[decided[removal.decision_id].stamp_ns] = f"Removal {number}, let through by {word}"
    for number, question in enumerate(laptop.questions, 1):
        if question.decision_id in decided:
            wanted[decided[question.decision_id].stamp_ns] = f"Question {number} to a person"
    wanted.setdefault(laptop.scenes[0].stamp_ns, "First image")
    wanted[laptop.scenes[-1].stamp_ns] = "Last image"
    chosen = [(wanted[s.stamp_ns], s) for s in laptop.scenes if s.stamp_ns in wanted]
    return chosen if len(chosen) <= MOST_PICTURES else [*chosen[: MOST_PICTURES - 1], chosen[-1]]


def cell_report(
    laptops: Sequence[RecordedLaptop],
    bag_path: Path,
    pictures_folder: Path,
    policy: Policy,
    *,
    title: str,
    lead: str,
    headlines: Sequence[report_model.Headline],
    columns: Sequence[str],
    rows: Sequence[tuple[str | int | float | None, ...]],
    environment: Mapping[str, str],
    sections: Sequence[report_model.ReportSection] = (),
) -> report_model.Report:
    """The report of ``laptops``; writes its annotated pictures to ``pictures_folder``, OSError when the disk refuses one."""
    scenes = {id(laptop): key_scenes(laptop) for laptop in laptops}
    shown = {scene.stamp_ns for chosen in scenes.values() for _, scene in chosen}
    items = (item for item in open_source(bag_path) if item.image is not None and item.stamp_ns in shown)
    images = {item.stamp_ns: item.image for item in items}
    pictures_folder.mkdir(parents=True, exist_ok=True)
    entries: dict[int, list[ReportEntry]] = {id(laptop): [] for laptop in laptops}
    for laptop in laptops:
        for number, (name, scene) in enumerate(scenes[id(laptop)], 1):
            decision = laptop.decision_of(scene)
            image = images.get(scene.stamp_ns)
            picture = None if image is None else annotate(image, scene, decision)
            if picture is not None:
                write_file(pictures_folder / f"{laptop.workpiece_id}-{number:02d}.jpg", encode_jpeg(picture))
            entries[id(laptop)].append(ReportEntry(name, scene, decision, picture))
    return report_model.Report(
        title=title,
        lead=lead,
        laptops=tuple(_laptop(laptop, entries[id(laptop)], policy) for laptop in laptops),
        headlines=tuple(headlines),
        summary_columns=tuple(columns),
        summary_rows=tuple(rows),
        limits=policy_limits(policy),
        timings=stage_times(laptops),
        environment=dict(environment),
        sections=tuple(sections),
    )


def _laptop(
    laptop: RecordedLaptop, entries: Sequence[ReportEntry], policy: Policy
) -> report_model.ReportLaptop:
    removals = laptop.removals()
    facts = (
        ("images assessed", str(len(laptop.scenes))),
        ("removals begun", str(len(removals))),
        ("of them by a person's word", str(sum(laptop.by_operator(r) for r in removals))),
        ("questions to a person", str(len(laptop.questions))),
        (
            "time in the cell",
            f"{(laptop.left_ns - laptop.arrived_ns) / 1e9:.1f} s" if laptop.left_ns else "never left",
        ),
    )
    dil = [s.localization.dil if s.localization is not None else float("nan") for s in laptop.scenes]
    entropy = [max((o.shannon_entropy for o in s.objects), default=float("nan")) for s in laptop.scenes]
    return report_model.ReportLaptop(
        title=laptop.workpiece_id,
        entries=tuple(entries),
        timeline=tuple(_timeline(laptop)),
        result=laptop.result or "still in the cell when the recording ended",
        tone=Tone.GOOD if laptop.clean else Tone.WARN,
        facts=facts,
        courses=(
            Course("DiL", tuple(dil), policy.max_dil),
            Course("highest entropy of an object, bit", tuple(entropy), policy.max_shannon_entropy),
        ),
    )


def _timeline(laptop: RecordedLaptop) -> list[TimelineEvent]:
    events = [TimelineEvent(laptop.arrived_ns, "cell", f"{laptop.workpiece_id} arrives")]
    outcome = Outcome.UNKNOWN
    for decision in sorted(laptop.decisions.values(), key=lambda d: d.stamp_ns):
        if decision.outcome is not outcome:
            outcome = decision.outcome
            events.append(TimelineEvent(decision.stamp_ns, "policy", f"the scene is judged {outcome.name}"))
    for change in laptop.gate:
        tone = _TONES.get(change.state, Tone.PLAIN)
        events.append(TimelineEvent(change.stamp_ns, "gate", f"{change.state}: {change.text}", tone))
    for question in laptop.questions:
        events.append(TimelineEvent(question.stamp_ns, "supervisor", f"asks: {question.text}", Tone.WARN))
        if question.answered_ns:
            events.append(
                TimelineEvent(question.answered_ns, "person", f"{question.person}: {question.answer}")
            )
    events.sort(key=lambda event: event.stamp_ns)
    if laptop.left_ns:
        # the stamp is that of an image, which may be older than the operator's answer that was the cause
        left_ns = max(laptop.left_ns, events[-1].stamp_ns)
        tone = Tone.GOOD if laptop.clean else Tone.WARN
        events.append(TimelineEvent(left_ns, "cell", f"{laptop.workpiece_id} leaves: {laptop.result}", tone))
    return events
