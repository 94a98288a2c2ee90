"""The report of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sticker_uq.evaluation.replay.tally import Tally
from sticker_uq.evaluation.reporting.cell_report import policy_limits
from sticker_uq.evaluation.reporting.report_model import (
    Course,
    Headline,
    Report,
    ReportEntry,
    ReportLaptop,
    Tone,
)
from sticker_uq.gate import Policy
from sticker_uq.messages import OUTCOMES

if TYPE_CHECKING:
    from sticker_uq.evaluation.replay.replay import ReplaySummary

_TONES = {"WORK": Tone.GOOD, "CLEAN": Tone.GOOD, "ASK": Tone.WARN, "BLOCKED": Tone.BAD}


def replay_report(
    summary: ReplaySummary, tally: Tally, entries: Sequence[ReportEntry], policy: Policy
) -> Report:
    """The report of a replay: `tally` of its images, `entries` the images it shows."""
    per_second = summary.images / summary.seconds if summary.seconds > 0 else float("nan")
    unusable = (
        f"{summary.failed} of them could not be used" if summary.failed else "All of them could be used"
    )
    lead = (
        f"{summary.images} images of {summary.source} were assessed and judged one by one, without a robot and without "
        f"anybody's answers. {unusable}."
    )
    headlines = [Headline("images", str(summary.images)), Headline("objects", str(summary.objects))]
    headlines += [
        Headline(OUTCOMES[name.lower()], str(summary.outcomes[name]), tone)
        for name, tone in _TONES.items()
        if name in summary.outcomes
    ]
    headlines.append(Headline("images per second", f"{per_second:.3g}"))
    laptop = ReportLaptop(
        title="Images",
        entries=tuple(entries),
        facts=(
            ("shown here", f"{len(entries)} of {summary.images}"),
            ("seen too seldom to be measured", str(summary.unstable)),
            ("stickers that may be removed", str(summary.removable)),
            *((f"objections of {name}", str(count)) for name, count in summary.objections.items()),
        ),
        courses=_courses(tally, policy) if tally.images > 1 else (),
    )
    return Report(
        title="Replay",
        lead=lead,
        laptops=(laptop,),
        headlines=tuple(headlines),
        summary_columns=("image that could not be used", "reason") if tally.failures else (),
        summary_rows=tuple(tally.failures),
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


def _courses(tally: Tally, policy: Policy) -> tuple[Course, ...]:
    return (
        Course("DiL", tuple(tally.courses["dil"]), policy.max_dil),
        Course("mean Shannon entropy, bit", tuple(tally.courses["shannon_entropy"])),
        Course("mean mutual information, bit", tuple(tally.courses["mutual_information"])),
        Course("objects", tuple(tally.courses["objects"])),
    )
