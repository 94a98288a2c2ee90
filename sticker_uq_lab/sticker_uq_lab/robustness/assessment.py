# SPDX-License-Identifier: Apache-2.0
"""A whole robustness assessment (Wozniak et al., tasks 4 to 7): follow-up cases, answers, figures, distances, verdicts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from sticker_uq.evaluation.executors import map_over, worker_pool
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.io.files import write_file
from sticker_uq.io.images import read_image_file
from sticker_uq.io.setting_fields import Frozen
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab import Progress
from sticker_uq_lab.robustness import followups, verdicts
from sticker_uq_lab.robustness.distances import (
    ComparedPicture,
    ImageDistances,
    feature_distances,
    pair_distances,
)
from sticker_uq_lab.robustness.frequencies import CoverageRow, SourceSet
from sticker_uq_lab.robustness.performance import Judged, Performance
from sticker_uq_lab.robustness.spec import Specification
from sticker_uq_lab.robustness.systems import System, SystemAnswer

CASES, RESULT = "cases", "assessment.json"
IMAGE_DISTANCES = ("mse", "psnr", "ssim", "cw_ssim")
PAIR_FEATURE_DISTANCES = ("euclidean", "cosine")
WHOLE = "all"
"""What checks of the target set call their circumstance."""


@dataclass(frozen=True)
class Prepared:
    """``chosen``: the assessed source images; ``sets`` of their follow-up cases by circumstance, "" for all in proportion."""

    chosen: SourceSet
    sets: Mapping[str, tuple[followups.FollowUpCase, ...]]


class _Value(Frozen):
    model_config = ConfigDict(ser_json_inf_nan="strings")


class SetResult(_Value):
    """``figures``: performance by name; ``distances`` from the source set by name, empty for the source."""

    kind: Literal["source", "target", "circumstance"]
    circumstance: str
    figures: dict[str, float]
    distances: dict[str, float]


class Assessment(_Value):
    """``environment``: versions and settings; ``significance_shares``: by finding."""

    specification: Specification
    system: str
    identity: str
    sets: tuple[SetResult, ...]
    checks: tuple[verdicts.RelationCheck, ...]
    coverage: tuple[CoverageRow, ...]
    finding: verdicts.Finding
    significance_shares: dict[verdicts.Finding, float]
    by_circumstance: dict[str, verdicts.Finding]
    environment: dict[str, str]


def prepare(
    spec: Specification,
    source: SourceSet,
    folder: Path,
    images: int,
    target: int,
    jobs: int = 1,
    progress: Progress = lambda stage, done, total: None,
) -> Prepared:
    """Make the follow-up cases in ``folder``/cases, a COCO folder; those already there are kept.

    ``images`` drawn by the specification's seed are put into each circumstance; ``target`` cases in target proportions.
    """
    followups.check_transformations(spec)
    if images < 1 or target < 1:
        raise InvalidInput(f"{images} images and {target} cases: expected at least one of each")
    order = np.random.default_rng(spec.seed).permutation(len(source))[:images]
    chosen = SourceSet(source.folder, tuple(source.images[n] for n in sorted(order)), source.tagged)
    sets = {"": followups.target_set(spec, len(chosen), target)}
    sets |= {
        one.name: followups.circumstance_set(spec, one, range(len(chosen)))
        for one in followups.with_transformation(spec)
    }
    folder.mkdir(parents=True, exist_ok=True)
    made = followups.make_cases(
        chosen, sets, folder / CASES, jobs, lambda done, total: progress("cases", done, total)
    )
    return Prepared(chosen, made)


@dataclass(frozen=True)
class ImageReply:
    """The answer about an image, and how far that is from its source (None for a source image)."""

    answer: SystemAnswer
    distances: ImageDistances | None = None


@lru_cache(maxsize=4)
def _reference(path: Path) -> ComparedPicture:
    return ComparedPicture(read_image_file(path))


_system: System | None = None


def _begin(load: Callable[[], System]) -> System:
    global _system
    _system = load()
    return _system


def _ask(question: tuple[LabelledImage, LabelledImage | None]) -> ImageReply:
    """The reply about an image, which is compared with its source, if any."""
    assert _system is not None
    item, source = question
    image = read_picture(item)
    return ImageReply(
        _system.answer(image, item.path), None if source is None else _reference(source.path).compare(image)
    )


def _replies(
    questions: Sequence[tuple[LabelledImage, LabelledImage | None]], load: Callable[[], System], jobs: int
) -> Iterator[ImageReply]:
    if jobs == 1:
        yield from map(_ask, questions)
        return
    with worker_pool(jobs, partial(_begin, load)) as pool:
        yield from pool.map(_ask, questions, chunksize=4)


@dataclass(frozen=True)
class AnsweredSet:
    """Follow-up cases and their sources with replies; ``origin`` (cases,): index into ``sources``."""

    circumstance: str
    cases: tuple[followups.FollowUpCase, ...]
    replies: tuple[ImageReply, ...]
    sources: tuple[LabelledImage, ...]
    source_replies: tuple[ImageReply, ...]
    origin: NDArray[np.intp]

    def pair(self, spec: Specification) -> verdicts.Paired:
        source = [Judged(item, r.answer) for item, r in zip(self.sources, self.source_replies, strict=True)]
        target = [
            Judged(case.truth, reply.answer, ObjectClass.STICKER in case.source.labels[case.hidden])
            for case, reply in zip(self.cases, self.replies, strict=True)
        ]
        measured = spec.match_iou, spec.decision_score
        return verdicts.Paired(
            Performance(source, *measured),
            Performance(target, *measured),
            self.origin,
            self.distances(spec.distance),
        )

    def distances(self, name: str) -> NDArray[np.float64]:
        """d of every pair (cases,), or of the two sets (1,); a pair without an answer counts as the others on average."""
        if name in IMAGE_DISTANCES:
            return np.array([r.distances.distance(name) for r in self.replies if r.distances is not None])
        features = self._features()
        if features is None:
            raise InvalidInput(
                f"distance {name} needs the features of a network, and the system gives none: choose one of "
                f"{', '.join(IMAGE_DISTANCES)} in the specification"
            )
        source, target, pairs, known = features
        if name not in PAIR_FEATURE_DISTANCES:
            found = feature_distances(source, target, pairs)
            return np.array([found["linkage_centroid" if name == "linkage" else name]])
        values = pair_distances(source, target, pairs)[name]
        result = np.full(len(self.replies), values.mean())
        result[known] = values
        return result

    def all_distances(self) -> dict[str, float]:
        """Every distance by name: means over the pairs, PSNR of the mean squared error."""
        found = [r.distances for r in self.replies if r.distances is not None]
        result = {name: float(np.mean([getattr(d, name) for d in found])) for name in IMAGE_DISTANCES}
        mse = result["mse"]
        result["psnr"] = float(10 * np.log10(255**2 / mse)) if mse else float("inf")
        features = self._features()
        return result if features is None else result | feature_distances(*features[:3])

    def _features(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp], NDArray[np.intp]] | None:
        """Features of the sources and of the answered cases, the source row of each case, and which cases these are."""
        rows = {
            i: r.answer.features for i, r in enumerate(self.source_replies) if r.answer.features is not None
        }
        known = [
            i
            for i, r in enumerate(self.replies)
            if r.answer.features is not None and int(self.origin[i]) in rows
        ]
        if len(rows) < 2 or len(known) < 2:
            return None
        place = {index: row for row, index in enumerate(rows)}
        source = np.array(list(rows.values()), np.float64)
        target = np.array([self.replies[i].answer.features for i in known], np.float64)
        return source, target, np.array([place[int(self.origin[i])] for i in known]), np.array(known)


def assess(
    spec: Specification,
    prepared: Prepared,
    folder: Path,
    load: Callable[[], System],
    *,
    jobs: int = 1,
    coverage: Sequence[CoverageRow] = (),
    environment: Mapping[str, str] | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Assessment:
    """Ask a system about every image of ``prepared``; the result is also in ``folder``/assessment.json.

    ``load`` makes the system in each process (for ``jobs`` > 1 picklable). The result does not depend on ``jobs``.
    """
    items = [image.item for image in prepared.chosen.images]
    cases = {case.case_id: case for one in prepared.sets.values() for case in one}
    ordered = sorted(cases.values(), key=lambda case: case.source_id)
    questions = [*((item, None) for item in items), *((case.truth, case.source) for case in ordered)]
    system, replies = _begin(load), []
    for reply in _replies(questions, load, jobs):
        replies.append(reply)
        progress("answers", len(replies), len(questions))
    of_source = {item.image_id: reply for item, reply in zip(items, replies, strict=False)}
    of_case = {case.case_id: reply for case, reply in zip(ordered, replies[len(items) :], strict=True)}
    sets = [_answer_set(name, one, of_case, of_source) for name, one in prepared.sets.items()]
    judged = [Judged(item, of_source[item.image_id].answer) for item in items]
    whole = Performance(judged, spec.match_iou, spec.decision_score).figures()
    results, checks = [SetResult(kind="source", circumstance="", figures=whole, distances={})], []
    for done, (result, found) in enumerate(map_over(partial(_evaluate, spec), sets, jobs), 1):
        results.append(result)
        checks += found
        progress("verdicts", done, len(sets))
    assessment = Assessment(
        specification=spec,
        system=system.name,
        identity=system.identity,
        sets=tuple(results),
        checks=tuple(checks),
        coverage=tuple(coverage),
        **verdicts.overall_verdict(checks, {c.name: c.significance for c in spec.circumstances}),
        environment=dict(environment or {}),
    )
    write_file(folder / RESULT, assessment.model_dump_json(indent=1))
    return assessment


def _answer_set(
    circumstance: str,
    cases: tuple[followups.FollowUpCase, ...],
    of_case: Mapping[str, ImageReply],
    of_source: Mapping[int, ImageReply],
) -> AnsweredSet:
    sources = {case.source_id: case.source for case in cases}
    place = {identity: number for number, identity in enumerate(sources)}
    return AnsweredSet(
        circumstance,
        cases,
        tuple(of_case[case.case_id] for case in cases),
        tuple(sources.values()),
        tuple(of_source[identity] for identity in sources),
        np.array([place[case.source_id] for case in cases]),
    )


def _evaluate(spec: Specification, one: AnsweredSet) -> tuple[SetResult, list[verdicts.RelationCheck]]:
    paired, name = one.pair(spec), one.circumstance
    significance = spec.circumstance(name).significance if name else mean_significance(spec)
    epsilons = {metric: partial(spec.epsilon, metric, significance=significance) for metric in spec.relations}
    drawing = {"resamples": spec.resamples, "seed": spec.seed}
    checks = verdicts.check_relations(paired, epsilons, name or WHOLE, confidence=spec.confidence, **drawing)
    result = SetResult(
        kind="circumstance" if name else "target",
        circumstance=name,
        figures=paired.target.figures(),
        distances=one.all_distances(),
    )
    return result, checks


def mean_significance(spec: Specification) -> float:
    able = [c for c in spec.circumstances if c.transformation is not None]
    total = sum(c.frequency for c in able)
    return sum(c.significance * c.frequency for c in able) / total if total else 1.0
