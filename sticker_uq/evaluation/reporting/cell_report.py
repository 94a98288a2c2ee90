# SPDX-License-Identifier: Apache-2.0
"""The report of a recorded cell: laptop by laptop, what was seen, how sure, what was decided and why, and what happened."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import MappingProxyType

from sticker_uq.evaluation import report_model
from sticker_uq.evaluation.annotated_images import annotate
from sticker_uq.evaluation.replay.recording import AskedPerson, RecordedLaptop
from sticker_uq.evaluation.report_model import Course, ReportEntry, TimelineEvent, Tone
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy import LIMITED_METRICS, LOWEST_PROBABILITY, NO_LIMIT
from sticker_uq.io.files import write_file
from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.sources import open_source
from sticker_uq.messages import texts_of
from sticker_uq.scene import METRICS, ObjectVerdict, Outcome, SceneAssessment, SceneDecision, Verdict

MOST_PICTURES = 8
"""Pictures of one laptop in the report."""
STAGES = ("decode_image", "encode", "sample", "detect", "dil", "novelty", "cluster", "total")
_TONES = {"permitted": Tone.GOOD, "removing": Tone.GOOD, "intervention": Tone.WARN, "fault": Tone.BAD}


def policy_limits(policy: Policy) -> dict[str, float]:
    """The limits of ``policy`` that can decide: those that no value exceeds are off."""
    highest = {name: min(METRICS[name].highest, NO_LIMIT) for name in LIMITED_METRICS}
    upper = {name: getattr(policy, f"max_{name}") for name in LIMITED_METRICS} | {"dil": policy.max_dil}
    lower = {"score": policy.min_probability, "detection_rate": policy.min_detection_rate}
    lowest = {"score": LOWEST_PROBABILITY, "detection_rate": 0.0}
    return {name: limit for name, limit in lower.items() if limit > lowest[name]} | {
        name: limit for name, limit in upper.items() if limit < highest.get(name, 1.0)
    }


def stage_times(laptops: Sequence[RecordedLaptop]) -> dict[str, float]:
    """Median milliseconds per image of every stage that the assessments name."""
    times: dict[str, list[float]] = {}
    for scene in (scene for laptop in laptops for scene in laptop.scenes):
        for stage, ms in scene.timings.items():
            times.setdefault(stage, []).append(ms)
    known = [stage for stage in STAGES if stage in times]
    return {stage: median(times[stage]) for stage in [*known, *sorted(set(times) - set(known))]}


def key_scenes(laptop: RecordedLaptop) -> list[tuple[str, SceneAssessment, AskedPerson | None]]:
    """The scenes worth a picture, each with a title: the first, each question (which is there, too), each removal, the last."""
    if not laptop.scenes:
        return []
    wanted: dict[int, str] = {}
    asked: dict[int, AskedPerson] = {}
    decided = {d.decision_id: d for d in laptop.decisions.values()}
    for number, removal in enumerate(laptop.removals(), 1):
        if removal.decision_id in decided:
            word = "a person's word" if laptop.by_operator(removal) else "the policy"
            wanted[decided[removal.decision_id].stamp_ns] = f"Removal {number}, let through by {word}"
    for number, question in enumerate(laptop.questions, 1):
        if question.decision_id in decided:
            wanted[decided[question.decision_id].stamp_ns] = f"Question {number} to a person"
            asked[decided[question.decision_id].stamp_ns] = question
    wanted.setdefault(laptop.scenes[0].stamp_ns, "First image")
    wanted.setdefault(laptop.scenes[-1].stamp_ns, "Last image")
    chosen = [(wanted[s.stamp_ns], s, asked.get(s.stamp_ns)) for s in laptop.scenes if s.stamp_ns in wanted]
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
    truth: Mapping[str, tuple[str, Tone]] = MappingProxyType({}),
) -> report_model.Report:
    """The report of ``laptops``; writes its annotated pictures to ``pictures_folder``, OSError when the disk refuses one.

    ``truth``: how a laptop really ended, by its id, where that is known; else the report says what the gate said.
    """
    scenes = {id(laptop): key_scenes(laptop) for laptop in laptops}
    shown = {scene.stamp_ns for chosen in scenes.values() for _, scene, _ in chosen}
    items = (item for item in open_source(bag_path) if item.image is not None and item.stamp_ns in shown)
    images = {item.stamp_ns: item.image for item in items}
    pictures_folder.mkdir(parents=True, exist_ok=True)
    entries: dict[int, list[ReportEntry]] = {id(laptop): [] for laptop in laptops}
    for laptop in laptops:
        for number, (name, scene, question) in enumerate(scenes[id(laptop)], 1):
            decision = laptop.decision_of(scene)
            if question is not None and decision is not None:
                decision = _in_question(decision, question)
            image = images.get(scene.stamp_ns)
            picture = None if image is None else annotate(image, scene, decision)
            if picture is not None:
                write_file(pictures_folder / f"{laptop.workpiece_id}-{number:02d}.jpg", encode_jpeg(picture))
            told = () if question is None else _describe_question(laptop, question)
            entries[id(laptop)].append(ReportEntry(name, scene, decision, picture, told=told))
    return report_model.Report(
        title=title,
        lead=lead,
        laptops=tuple(_laptop(one, entries[id(one)], policy, truth.get(one.workpiece_id)) for one in laptops),
        headlines=tuple(headlines),
        summary_columns=tuple(columns),
        summary_rows=tuple(rows),
        limits=policy_limits(policy),
        timings=stage_times(laptops),
        environment=dict(environment),
        sections=tuple(sections),
    )


def _in_question(decision: SceneDecision, question: AskedPerson) -> SceneDecision:
    """``decision`` as the person was asked about it: what the policy had let through may have become a question."""
    why = tuple(reason for reason in question.reasons if reason.code != "objects_to_decide")

    def ask(verdict: ObjectVerdict) -> ObjectVerdict:
        own = verdict.reasons if verdict.verdict is Verdict.ASK else why
        return replace(verdict, verdict=Verdict.ASK, reasons=own or verdict.reasons, by_operator=False)

    verdicts = tuple(ask(v) if v.object.id in question.objects else v for v in decision.verdicts)
    return replace(decision, verdicts=verdicts, outcome=Outcome.ASK, reasons=why)


def _describe_question(laptop: RecordedLaptop, question: AskedPerson) -> tuple[tuple[str, str], ...]:
    """What was asked and why, what the person said, and what came of it until the next question."""
    asked = ("asked", ", ".join(f"#{number}" for number in question.objects) or "is a sticker left?")
    reasons = [reason for reason in question.reasons if reason.code != "objects_to_decide"]
    why = ("because", texts_of(reasons) or question.text)
    if not question.answered_ns:
        return (asked, why, ("answer", "nobody has answered"))
    later = [other.stamp_ns for other in laptop.questions if other.stamp_ns > question.stamp_ns]
    until_ns = min(later, default=math.inf)
    begun = sum(
        laptop.by_operator(removal)
        for removal in laptop.removals()
        if question.answered_ns <= removal.stamp_ns < until_ns
    )
    came = f"the arm was let to {begun} place{'s' * (begun != 1)} on the person's word" if begun else (
        "nothing was peeled on the person's word"
    )  # fmt: skip
    after = "then came another question" if later else f"then it left: {laptop.result}"
    end = after if later or laptop.left_ns else "it never left"
    answer = f"{question.person}: {question.answer}" if question.person else question.answer
    return (asked, why, ("answer", answer), ("what came of it", f"{came}; {end}"))


def _laptop(
    laptop: RecordedLaptop,
    entries: Sequence[ReportEntry],
    policy: Policy,
    truth: tuple[str, Tone] | None = None,
) -> report_model.ReportLaptop:
    removals = laptop.removals()
    said = laptop.result or "still in the cell when the recording ended"
    result, tone = truth or (said, Tone.GOOD if laptop.clean else Tone.WARN)
    limits = policy_limits(policy)
    facts = (
        *((("the gate said", said),) if truth else ()),
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
        result=result,
        tone=tone,
        facts=facts,
        courses=(
            Course("DiL", tuple(dil), limits.get("dil", math.nan)),
            Course(
                "highest entropy of an object, bit", tuple(entropy), limits.get("shannon_entropy", math.nan)
            ),
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
