# SPDX-License-Identifier: Apache-2.0
"""What the gate removes, asks about and gets wrong on rendered laptops that it never saw, beside a plain score threshold.

    python -m benchmarks.gate --scenes 1000 --jobs 2

A policy is fitted and proved on seeded scenes and then measured on others; ``benchmarks.hard`` has circumstances that it was not
made for. The exchangeable unit is one image of one laptop. A real cell needs K scenes in a row that agree before the arm moves,
which only removes permits: measured here is the decision about a single image. Assessments are kept in ``--cache``, so that a
second run takes minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.rendered import records
from benchmarks.result_files import result_file
from sticker_uq.calibration.calibration_report import (
    ablation_table,
    curve_drawing,
    guarantee_text,
    measured_table,
    proof_table,
)
from sticker_uq.calibration.fitting import Levels, certify, fit_policy
from sticker_uq.calibration.measuring import COMBINED, PLAIN, Ablation, ablation, measure, scores
from sticker_uq.calibration.outcomes import MATCH_IOU, outcomes_of
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.decisions import Measured
from sticker_uq.evaluation.reporting.document import Block, as_markdown
from sticker_uq.gate import Policy
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.perception import PerceptionSettings

FIT, PROOF, TEST = 7_000_000, 110_000_000, 120_000_000
"""First seeds of the three sets. The packaged weights were trained and chosen on seeds below 3,000,300. Which signals are
combined and how was chosen on 3000 scenes from the first seed on, and on none of the others.
"""
_RESAMPLES = 100
STRICT_IOU = 0.5
"""A removal counts as wrong here already when the box fits what is seen of a sticker badly."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; exits with 1 when a promise is not kept."""
    options = _options().parse_args(arguments)
    levels = Levels(options.alpha, options.beta, options.delta)
    settings = PerceptionSettings(device="cpu", threads=1)
    fit, proof, test = _records(options, settings)
    draft = fit_policy(fit, Policy(), level=levels.alpha)
    policy = certify(draft, fit, proof, levels)
    assert policy.guarantee is not None
    measured = measure(test, policy)
    rows = ablation(fit, proof, test, draft, levels.alpha, levels.delta, resamples=_RESAMPLES)
    strict = _strict(fit, proof, test, levels)
    plain = next(row for row in rows if row.name == PLAIN)
    blocks: list[Block] = [
        "# The gate on rendered laptops",
        guarantee_text(policy.guarantee),
        proof_table(policy.guarantee),
        f"## {len(test)} laptops that took no part",
        measured_table(measured),
        "## Under the same promise",
        ablation_table(rows),
        f"## The same where a removal needs an overlap of {STRICT_IOU:g} instead of {MATCH_IOU:g}",
        ablation_table(strict),
    ]
    Console(width=160).print(as_markdown(blocks), markup=False, highlight=False, soft_wrap=True)
    if options.json:
        with atomic_write(options.json, "w") as stream:
            json.dump(_plain(policy, measured, rows, strict), stream, indent=1)
    if options.curves:
        with atomic_write(options.curves, "w") as stream:
            stream.write(curve_drawing(scores(outcomes_of(test, draft))[:2], levels.alpha))
    checks = {
        "wrongful removals within alpha": measured.wrongful.rate <= levels.alpha,
        "missed stickers within beta": not measured.missed.of or measured.missed.rate <= levels.beta,
        "70 % of the stickers removed without a person": measured.removed.rate >= 0.7,
        "more removed than by the score threshold at equal measured risk": next(
            row for row in rows if row.name == COMBINED
        ).at_equal_risk
        > plain.at_equal_risk,
        f"the same at an overlap of {STRICT_IOU:g}": next(
            row for row in strict if row.name == COMBINED
        ).at_equal_risk
        > next(row for row in strict if row.name == PLAIN).at_equal_risk,
    }
    for name, kept in checks.items():
        print(f"{'yes' if kept else 'NO '} {name}")
    if not (checks["wrongful removals within alpha"] and checks["missed stickers within beta"]):
        raise SystemExit(1)


def _strict(
    fit: Sequence[Record], proof: Sequence[Record], test: Sequence[Record], levels: Levels
) -> list[Ablation]:
    draft = fit_policy(fit, Policy(), match_iou=STRICT_IOU, level=levels.alpha)
    return ablation(fit, proof, test, draft, levels.alpha, levels.delta, STRICT_IOU, _RESAMPLES)


def _records(
    options: argparse.Namespace, settings: PerceptionSettings
) -> tuple[list[Record], list[Record], list[Record]]:
    plans = {"fit": (FIT, options.fit), "proof": (options.proof_seed, options.proof)}
    plans["test"] = (options.test_seed, options.scenes)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    made = []
    with JsonStore(options.cache) as cache, Progress(*columns, console=Console(stderr=True)) as bar:
        for name, (first, count) in plans.items():
            step = partial(bar.advance, bar.add_task(name, total=count))
            made.append(records(range(first, first + count), settings, cache, options.jobs, step))
    fit, proof, test = made
    return fit, proof, test


def _plain(
    policy: Policy, measured: Measured, rows: Sequence[Ablation], strict: Sequence[Ablation]
) -> dict[str, Any]:
    assert policy.guarantee is not None
    return {
        "policy": policy.hash,
        "guarantee": policy.guarantee.model_dump(mode="json"),
        "unseen": asdict(measured),
        "scores": [asdict(row) for row in rows],
        "scores_strict": [asdict(row) for row in strict],
    }


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=1000, help="unseen laptops to measure on")
    parser.add_argument("--fit", type=int, default=3000, help="laptops to fit on")
    parser.add_argument("--proof", type=int, default=1500, help="laptops that prove the promises")
    parser.add_argument("--proof-seed", type=int, default=PROOF, help="first seed of those")
    parser.add_argument("--test-seed", type=int, default=TEST, help="first seed of the laptops to measure on")
    parser.add_argument("--alpha", type=float, default=0.01, help="promise about wrongful removals")
    parser.add_argument("--beta", type=float, default=0.05, help="promise about missed stickers")
    parser.add_argument("--delta", type=float, default=0.1, help="1 - delta is the confidence of either")
    parser.add_argument("--jobs", type=int, default=1, help="processes that render and assess")
    parser.add_argument(
        "--cache", type=Path, default=Path("out/benchmarks/gate.sqlite"), help="kept assessments"
    )
    parser.add_argument("--json", type=result_file, help="also write the figures to this file")
    parser.add_argument("--curves", type=result_file, help="also draw risk over coverage into this SVG file")
    return parser


if __name__ == "__main__":
    main()
