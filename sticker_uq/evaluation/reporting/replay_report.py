# SPDX-License-Identifier: Apache-2.0
"""The report of a replay."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from sticker_uq.evaluation.metrics.decisions import Measured
from sticker_uq.evaluation.replay.comparison import KINDS, SIDES, Differences
from sticker_uq.evaluation.replay.findings import remedy
from sticker_uq.evaluation.replay.replay import ReplayResult, ReplaySummary
from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.evaluation.report_model import (
    Course,
    Headline,
    Report,
    ReportLaptop,
    ReportSection,
    Tone,
)
from sticker_uq.evaluation.reporting.cell_report import policy_limits
from sticker_uq.evaluation.reporting.document import draw_blocked_bars
from sticker_uq.evaluation.reporting.report import write_report
from sticker_uq.gate import Policy
from sticker_uq.io.files import write_file
from sticker_uq.messages import OUTCOMES

_TONES = {"WORK": Tone.GOOD, "CLEAN": Tone.GOOD, "ASK": Tone.WARN, "BLOCKED": Tone.BAD}


_SHOWN = ("about", "name", "blocked", "alone", "limit", "value_p10", "value_median", "value_p90")


def write_replay(result: ReplayResult, policy: Policy, out: Path) -> ReplaySummary:
    """Write report.html and summary.json (returned) into `out`, each completely or not at all; OSError when the disk refuses."""
    summary = replace(result.summary, files=(*result.summary.files, "report.html", "summary.json"))
    write_report(replay_report(result, policy), out / "report.html")
    write_file(out / "summary.json", json.dumps(asdict(summary), indent=2))
    return summary


def replay_report(result: ReplayResult, policy: Policy) -> Report:
    summary, tally, entries = result.summary, result.tally, result.entries
    per_second = summary.images / summary.seconds if summary.seconds > 0 else float("nan")
    unusable = f"{summary.failed} of them could not" if summary.failed else "All of them could"
    lead = (
        f"{summary.images} images of {summary.source} were assessed and judged one by one, without a robot and without "
        f"anybody's answers. {unusable} be used."
    )
    headlines = [Headline("images", str(summary.images)), Headline("objects", str(summary.objects))]
    headlines += [
        Headline(OUTCOMES[name.lower()], str(summary.outcomes[name]), tone)
        for name, tone in _TONES.items()
        if name in summary.outcomes
    ]
    headlines.append(Headline("images per second", f"{per_second:.3g}"))
    courses = (
        Course("DiL", tuple(tally.courses["dil"]), policy.max_dil),
        Course("mean Shannon entropy, bit", tuple(tally.courses["shannon_entropy"])),
        Course("mean mutual information, bit", tuple(tally.courses["mutual_information"])),
        Course("objects", tuple(tally.courses["objects"])),
    )
    laptop = ReportLaptop(
        title="Images",
        entries=tuple(entries),
        facts=(
            ("shown here", f"{len(entries)} of {summary.images}"),
            ("seen too seldom to be measured", str(summary.unstable)),
            ("stickers that may be removed", str(summary.removable)),
            *((f"objections of {name}", str(count)) for name, count in summary.objections.items()),
        ),
        courses=courses if tally.images > 1 else (),
    )
    return Report(
        title="Replay",
        lead=lead,
        laptops=(laptop,),
        headlines=tuple(headlines),
        summary_columns=("image that could not be used", "reason") if tally.failures else (),
        summary_rows=tuple(tally.failures),
        sections=(
            *([_against_labels(summary.labelled)] if summary.labelled is not None else []),
            *([_comparison_section(result.differences)] if result.differences is not None else []),
            *([_limits(result.limits)] if result.limits else []),
        ),
        limits=policy_limits(policy),
        timings=summary.timings_ms,
        environment={
            "source": summary.source,
            **({"topic": summary.topic} if summary.topic else {}),
            "model": summary.model,
            "weights (SHA-256)": summary.model_hash,
            "settings (SHA-256)": summary.settings_hash,
            **({"panel (SHA-256)": summary.panel_hash} if summary.panel_hash else {}),
            "computed on": summary.device,
            "precision": summary.precision,
            "policy (SHA-256)": summary.policy_hash,
            **summary.environment,
        },
    )


def _comparison_section(found: Differences) -> ReportSection:
    outcomes = Counter((row["outcome"], row["candidate_outcome"]) for row in found.rows)
    classes = Counter(change for row in found.rows for change in row["other_classes"])
    rows = [
        (f"images: {OUTCOMES[one.lower()]}", OUTCOMES[other.lower()], count)
        for (one, other), count in sorted(outcomes.items())
    ]
    rows += [
        (f"objects {words}", "both" if side == "both" else f"only by {side}", total)
        for kind, words in KINDS.items()
        for side in SIDES
        if (total := sum(row[f"{kind}_{side}"] for row in found.rows))
    ]
    for key, count in sorted(classes.items()):
        one, other = key.split(">")
        rows.append((f"objects of class {one}", other, count))
    return ReportSection(
        title=f"Compared with {found.candidate.name}",
        note="The same images judged by both, without an operator. Objects are the same where their boxes overlap. Which of "
        "them is right is counted with --labels, one replay each.",
        columns=("replayed", "candidate", "count"),
        rows=tuple(rows),
    )


def _limits(rows: Sequence[Row]) -> ReportSection:
    objects = [row for row in rows if row["about"] == "object"]
    columns = ([row[name] for row in objects] for name in ("name", "blocked", "alone"))
    chart = draw_blocked_bars(*columns) if objects else ""
    most = [
        max(same, key=lambda row: (row["alone"], row["blocked"]))
        for about in ("object", "scene")
        if (same := [row for row in rows if row["about"] == about])
    ]
    told = "".join(
        f" Of the {row['about']}s most are held back by: {row['name']} ({row['alone']} alone). What to do: {remedy(row)}."
        for row in most
    )
    return ReportSection(
        title="What kept objects and scenes from being released",
        note="Alone: nothing else blocked it, so that only this limit decides about it. The values are those measured on "
        f"what was blocked: 10th percentile, median, 90th percentile.{told} More is in docs/howto/policy.md (see what it does).",
        chart=chart,
        columns=("about", "reason", "blocked", "alone", "limit", "10 %", "median", "90 %"),
        rows=tuple(tuple(row[name] for name in _SHOWN) for row in rows),
    )


def _against_labels(found: Measured) -> ReportSection:
    wrong = f"{found.wrong_objects} removals would do harm, {found.on_logo} of them on logos. "
    return ReportSection(
        title="What was decided, and what the labels say",
        note=f"{wrong if found.wrong_objects else ''}Each image by itself; images that the labels say are of the same laptop "
        "count as one. Nothing released and nothing called clean is never wrong: read the first and the third line too.",
        columns=("", "count", "95 % interval"),
        rows=tuple(
            (name, str(count), f"{count.interval[0]:.1%} to {count.interval[1]:.1%}" if count.of else "–")
            for name, count in found.rows().items()
        ),
    )
