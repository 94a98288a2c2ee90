# SPDX-License-Identifier: Apache-2.0
"""A whole robustness assessment: cases, answers, figures, verdicts, pictures, in one folder that a killed run is resumed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sticker_uq.lab.robustness.answering import (
    AnswerLog,
    ImageQuestion,
    answer_all,
    case_question,
    source_question,
)
from sticker_uq.lab.robustness.evaluating import evaluate, with_replies
from sticker_uq.lab.robustness.followups import (
    CaseSet,
    DraftSet,
    check_transformations,
    circumstance_set,
    make_cases,
    sweep_sets,
    target_set,
    with_transformation,
)
from sticker_uq.lab.robustness.frequencies import CoverageRow, SourceSet
from sticker_uq.lab.robustness.performance import Judged
from sticker_uq.lab.robustness.result import Assessment
from sticker_uq.lab.robustness.spec import Specification
from sticker_uq.lab.robustness.systems_interface import System
from sticker_uq.lab.robustness.verdicts import overall_verdict
from sticker_uq.scene import InvalidInput

CASES, ANSWERS = "cases", "answers.sqlite"

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""


@dataclass(frozen=True)
class Plan:
    """How much a robustness assessment covers. ``images`` of the source set in each circumstance; ``target`` cases in the target
    proportions; ``sweep_images`` at each strength of a severity sweep, 0 for none.
    """

    images: int
    target: int
    sweep_images: int


@dataclass(frozen=True)
class Prepared:
    source: SourceSet
    numbers: tuple[int, ...]
    sets: tuple[CaseSet, ...]

    @property
    def chosen(self) -> SourceSet:
        images = tuple(self.source.images[n] for n in self.numbers)
        return SourceSet(self.source.folder, images, self.source.tagged)

    def questions(self) -> list[ImageQuestion]:
        """One question of the robustness assessment per image: those of the source, then the follow-ups, by source image."""
        asked = [source_question(self.source.images[n].item) for n in self.numbers]
        cases = sorted((case for one in self.sets for case in one.cases), key=lambda case: case.source_id)
        return asked + [case_question(case) for case in cases]


def prepare(
    spec: Specification,
    source: SourceSet,
    folder: Path,
    plan: Plan,
    jobs: int = 1,
    progress: Progress = lambda stage, done, total: None,
) -> Prepared:
    """Make the follow-up cases in ``folder``/cases, a COCO folder; those already there are kept.

    The source images are drawn with the specification's seed. Raises InvalidInput for a specification whose transformations do
    not exist and for a folder that holds something else.
    """
    check_transformations(spec)
    if plan.images < 1 or plan.target < 1 or plan.sweep_images < 0:
        raise InvalidInput(f"{plan}: expected at least one image and one case")
    order = np.random.default_rng(spec.seed).permutation(len(source))[: plan.images]
    numbers = tuple(sorted(int(n) for n in order))
    chosen = SourceSet(source.folder, tuple(source.images[n] for n in numbers), source.tagged)
    images = range(len(chosen))
    sets: list[DraftSet] = [target_set(spec, len(chosen), plan.target)]
    for circumstance in with_transformation(spec):
        sets.append(circumstance_set(spec, circumstance, images))
        if plan.sweep_images:
            sets += sweep_sets(spec, circumstance, images[: plan.sweep_images])
    folder.mkdir(parents=True, exist_ok=True)
    made = make_cases(chosen, sets, folder / CASES, jobs, lambda done, total: progress("cases", done, total))
    return Prepared(source, numbers, tuple(made))


def assess(
    spec: Specification,
    prepared: Prepared,
    folder: Path,
    system: System,
    load: Callable[[], System],
    *,
    jobs: int = 1,
    coverage: Sequence[CoverageRow] = (),
    environment: Mapping[str, str] | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Assessment:
    """Robustness assessment of a system on every image of ``prepared``; the result is written to ``folder`` too.

    ``system``: the system in this process; ``load`` makes it in others (for ``jobs`` > 1, picklable). Answers that an earlier run
    left in ``folder`` are used. The result does not depend on ``jobs``. Raises InvalidInput for images that cannot be read, for
    the answers of another system in ``folder``, and for a distance that this system does not allow.
    """
    log = AnswerLog(folder / ANSWERS, system.identity)
    answer_all(
        prepared.questions(),
        log,
        load if jobs > 1 else lambda: system,
        jobs,
        lambda done, total: progress("answers", done, total),
    )
    items = [prepared.source.images[n].item for n in prepared.numbers]
    judged = [Judged(item, log[source_question(item).key].answer) for item in items]
    sets = with_replies(prepared.sets, log)
    found = evaluate(spec, judged, sets, jobs, lambda done, total: progress("verdicts", done, total))
    verdict = overall_verdict(found.checks, {c.name: c.significance for c in spec.circumstances})
    assessment = Assessment(
        specification=spec,
        system=system.name,
        identity=system.identity,
        gated=any(one.answer.action is not None and not one.answer.failure for one in judged),
        sets=found.sets,
        checks=tuple(found.checks),
        sweeps=found.sweeps,
        coverage=tuple(coverage),
        finding=verdict.finding,
        significance_shares=dict(verdict.weights),
        by_circumstance=dict(verdict.by_circumstance),
        environment=dict(environment or {}),
    )
    assessment.save(folder)
    return assessment
