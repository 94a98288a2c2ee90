# SPDX-License-Identifier: Apache-2.0
"""What a cascade of models costs and risks beside each of its models alone, on rendered scenes that none of them saw.

    OMP_NUM_THREADS=1 python -m benchmarks.cascade --scenes 200 --model ssdlite320_mobilenet_v3_large \
        --model fasterrcnn_resnet50_fpn=WEIGHTS@128

Every model assesses every scene once; the cascades are then what `perception.cascade.escalate` makes of these stages and of the
time that each of them took; in the row "at every doubt" a larger model assesses the scene too where single objects are doubtful
and something else may be removed first. A row "up to N ms" is the cascade with a budget, which expects of a model what it took on
average. All are judged by one ``--policy``. Printed with 95 % intervals (Clopper-Pearson): mean time of an image, images that a
larger model looked at, images in which something that is no sticker may be removed, images called clean that show a sticker,
stickers that may be removed without a person, and images that end with a question.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.result_files import result_file
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.decisions import Count, Measured
from sticker_uq.gate import Policy, judge
from sticker_uq.io.files import atomic_write
from sticker_uq.io.share import share_folder
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.lab.studies.detectors.study_plan import ModelChoice
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.cascade import CascadeStage, asks_a_person, escalate
from sticker_uq.scene import Outcome, SceneAssessment, Verdict

FIRST_SEED = 55_000_000
"""The packaged weights and those of docs/dil-study.md were trained and chosen on seeds below 5,108,000."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    system: str
    mean_ms: float
    escalated: int
    measured: Measured


def main() -> None:
    """Print one line per model and per cascade."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", action="append", required=True, help="[LABEL:]MODEL[=WEIGHTS][@MIN_SIZE], small to large"
    )
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--budgets-ms", type=float, nargs="*", default=[])
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--policy", type=Path, default=share_folder() / "config" / "policy.yaml")
    parser.add_argument("--json", type=result_file)
    options = parser.parse_args()
    policy = Policy.load(options.policy).model_copy(update={"validity": None})
    choices = [ModelChoice.parse(text) for text in options.model]
    seen = [_looks(choice, options) for choice in choices]
    rows = [
        _row(choice.label, [(one,) for one in own], policy) for choice, own in zip(choices, seen, strict=True)
    ]
    if len(seen) > 1:
        asks = partial(asks_a_person, policy=policy)
        for budget in (0.0, *options.budgets_ms):
            name = "cascade" + (f" up to {budget:g} ms" if budget else "")
            rows.append(_row(name, _cascade(seen, asks, budget), policy))
        doubts = partial(_doubts, policy=policy)
        rows.append(_row("cascade at every doubt", _cascade(seen, doubts, 0.0), policy))
    print(
        "| system | ms per image | escalated | wrongful | missed of clean | removed without a person | asked |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        counts = (row.measured.wrongful, row.measured.missed, row.measured.removed, row.measured.asked)
        cells = " | ".join(map(_text, counts))
        print(f"| {row.system} | {row.mean_ms:.0f} | {row.escalated} of {options.scenes} | {cells} |")
    if options.json:
        with atomic_write(options.json, "w") as stream:
            json.dump([asdict(row) for row in rows], stream, indent=2)


def _looks(choice: ModelChoice, options: argparse.Namespace) -> list[Record]:
    """What the model says about every scene."""
    settings = PerceptionSettings(
        model=choice.name,
        weights=choice.weights,
        min_size=choice.min_size,
        dropout_site=choice.dropout_site,
        precision=options.precision,
        device="cpu",
        threads=1,
    )
    perception = Perception(settings)
    perception.warm_up()
    found = []
    for seed in range(options.first_seed, options.first_seed + options.scenes):
        scene = render(sample_scene(seed))
        found.append(Record(f"{seed}", scene.boxes, scene.labels, perception.assess(scene.image)))
    return found


def _doubts(scene: SceneAssessment, policy: Policy) -> bool:
    decided = judge(scene, policy)
    return decided.outcome is Outcome.ASK or any(v.verdict is Verdict.ASK for v in decided.verdicts)


def _cascade(
    seen: Sequence[Sequence[Record]], unsure: Callable[[SceneAssessment], bool], budget_ms: float
) -> list[tuple[Record, ...]]:
    """The stages that the cascade runs for every scene."""
    expected = [float(np.mean([r.assessment.timings["total"] for r in own])) for own in seen]
    found = []
    for records in zip(*seen, strict=True):
        stages = [CascadeStage(lambda r=r: r.assessment, ms) for r, ms in zip(records, expected, strict=True)]  # type: ignore[misc]
        found.append(records[: len(escalate(stages, unsure, budget_ms))])
    return found


def _row(system: str, stages: Sequence[tuple[Record, ...]], policy: Policy) -> Row:
    times = [sum(r.assessment.timings["total"] for r in records) for records in stages]
    escalated = sum(len(records) > 1 for records in stages)
    return Row(system, float(np.mean(times)), escalated, measure([records[-1] for records in stages], policy))


def _text(count: Count) -> str:
    low, high = count.interval
    return f"{count.events} of {count.of} [{low:.3f}, {high:.3f}]" if count.of else "0 of 0"


if __name__ == "__main__":
    main()
