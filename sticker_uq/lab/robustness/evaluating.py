# SPDX-License-Identifier: Apache-2.0
"""From answers to verdicts: performance, distances, relations and severity sweeps of every set of cases (Wozniak et al.,
tasks 5 to 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from sticker_uq.evaluation.executors import mapped
from sticker_uq.io.coco import LabelledImage
from sticker_uq.lab.corruptions import transformation_named
from sticker_uq.lab.robustness.answering import AnswerLog, ImageReply, case_question, source_question
from sticker_uq.lab.robustness.distances import feature_distances, pair_distances
from sticker_uq.lab.robustness.followups import CaseSet, FollowUpCase
from sticker_uq.lab.robustness.performance import GATE_METRICS, Judged, Performance
from sticker_uq.lab.robustness.result import SetResult, SweepPoint, SweepResult
from sticker_uq.lab.robustness.spec import Specification
from sticker_uq.lab.robustness.verdicts import (
    Paired,
    RelationCheck,
    bootstrap,
    check_relation,
    resampled_weights,
)
from sticker_uq.scene import InvalidInput, ObjectClass

_RESAMPLES = 500
"""Of a sweep at most: its intervals are for reading off a plot, they decide nothing."""

Matrix = NDArray[np.float64]


def sweep_result(
    spec: Specification, circumstance: str, steps: Sequence[tuple[float, Paired]]
) -> tuple[SweepResult, ...]:
    """Severity sweep of a circumstance: performance over d for every metric with a relation and for the gate's.

    ``steps``: (strength, pairs), mildest first, the same source images in each.
    """
    known = spec.circumstance(circumstance)
    unit = transformation_named(known.transformation).unit if known.transformation else ""
    metrics = [*spec.relations, *(name for name in GATE_METRICS if name not in spec.relations)]
    resamples = min(spec.resamples, _RESAMPLES)
    source = steps[0][1].source
    weights = resampled_weights(len(source.images), resamples, spec.seed)
    before = bootstrap(source, metrics, weights)
    after = [bootstrap(pairs.target, metrics, weights[:, pairs.origin]) for _, pairs in steps]
    distances = np.array([[pairs.distance_of(row) for _, pairs in steps] for row in weights])
    tails = ((1 - spec.confidence) / 2, (1 + spec.confidence) / 2)
    results = []
    for metric in metrics:
        points = []
        for (strength, pairs), values in zip(steps, after, strict=True):
            usable = values[metric][np.isfinite(values[metric])]
            low, high = np.quantile(usable, tails) if len(usable) else (math.nan, math.nan)
            points.append(
                SweepPoint(
                    strength=strength,
                    distance=pairs.distance,
                    epsilon=_allowed(spec, metric, pairs.distance, known.significance),
                    value=pairs.target.value(metric),
                    low=float(low),
                    high=float(high),
                )
            )
        breaks = np.full(3, math.nan)
        mildest = False
        if metric in spec.relations:
            strengths = np.array([strength for strength, _ in steps])
            change = np.array([p.value for p in points]) - source.value(metric)
            allowed = np.array([p.epsilon for p in points])
            place = first_break(np.abs(change), allowed)
            mildest = place == 0
            drawn = []
            for row in range(resamples):
                changed = np.array([values[metric][row] for values in after]) - before[metric][row]
                limit = [_allowed(spec, metric, d, known.significance) for d in distances[row]]
                drawn.append(first_break(np.abs(changed), np.array(limit)))
            around = np.quantile(drawn, tails, method="inverted_cdf")
            breaks = np.array([_strength(p, strengths) for p in (place, *around)])
        results.append(
            SweepResult(
                circumstance=circumstance,
                metric=metric,
                unit=unit,
                source=source.value(metric),
                points=tuple(points),
                breaks_at=breaks[0],
                breaks_low=breaks[1],
                breaks_high=breaks[2],
                at_mildest=mildest,
            )
        )
    return tuple(results)


def first_break(difference: Matrix, allowed: Matrix) -> float:
    """At which step of a circumstance's sweep, from 0, ``difference`` (steps,) first exceeds ``allowed`` (steps,); infinite if
    never.

    More of a circumstance is taken to be no easier: differences are made monotone (isotonic regression) and joined by straight
    lines. A difference that cannot be measured counts as none.
    """
    risen = isotonic_regression(np.nan_to_num(difference)).x
    excess = risen - allowed
    beyond = np.flatnonzero(excess > 1e-12)
    if not len(beyond):
        return math.inf
    step = int(beyond[0])
    if step == 0:
        return 0.0
    return step - float(excess[step] / (excess[step] - excess[step - 1]))


def _strength(place: float, strengths: Matrix) -> float:
    return float(np.interp(place, np.arange(len(strengths)), strengths)) if math.isfinite(place) else math.nan


def _allowed(spec: Specification, metric: str, distance: float, significance: int) -> float:
    return spec.epsilon(metric, distance, significance) if metric in spec.relations else math.nan


IMAGE_DISTANCES = ("mse", "psnr", "ssim", "cw_ssim")
PAIR_FEATURE_DISTANCES = ("euclidean", "cosine")
WHOLE = "all"
"""What checks of the target set call their circumstance."""


@dataclass(frozen=True)
class AnsweredSet:
    """A set of follow-up cases with the replies of the assessed system, and their source images with theirs.

    ``origin`` (cases,): index into ``sources``.
    """

    cases: CaseSet
    replies: tuple[ImageReply, ...]
    sources: tuple[LabelledImage, ...]
    source_replies: tuple[ImageReply, ...]
    origin: NDArray[np.intp]

    def paired(self, spec: Specification) -> Paired:
        """Source and follow-ups for the metamorphic relation. InvalidInput when the distance needs features and there are
        none.
        """
        source = [Judged(item, r.answer) for item, r in zip(self.sources, self.source_replies, strict=True)]
        target = [
            Judged(case.truth, reply.answer, hides_sticker(case))
            for case, reply in zip(self.cases.cases, self.replies, strict=True)
        ]
        measured = spec.match_iou, spec.decision_score
        return Paired(
            Performance(source, *measured),
            Performance(target, *measured),
            self.origin,
            self.distances(spec.distance),
        )

    def distances(self, name: str) -> NDArray[np.float64]:
        """d of every source and follow-up (cases,), or of the two sets (1,). Pairs without an answer count as the others on
        average.
        """
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
            return np.array([feature_distances(source, target, pairs).distance(name)])
        values = pair_distances(source, target, pairs)[name]
        result = np.full(len(self.replies), values.mean())
        result[known] = values
        return result

    def all_distances(self) -> dict[str, float]:
        """Every distance of source and follow-ups by name, means over the pairs: figures and, for PSNR,
        dB of the mean squared error.
        """
        found = [r.distances for r in self.replies if r.distances is not None]
        mse = float(np.mean([d.mse for d in found]))
        result = {
            "mse": mse,
            "psnr": float(10 * np.log10(255**2 / mse)) if mse else float("inf"),
            "ssim": float(np.mean([d.ssim for d in found])),
            "cw_ssim": float(np.mean([d.cw_ssim for d in found])),
        }
        features = self._features()
        if features is not None:
            source, target, pairs, _ = features
            one = feature_distances(source, target, pairs)
            result |= {"fid": one.fid, "fid_floor": one.fid_floor}
            result |= {"euclidean": one.euclidean, "cosine": one.cosine}
            result |= {f"linkage_{kind}": value for kind, value in one.linkage.items()}
        return result

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


@dataclass(frozen=True)
class Evaluated:
    sets: tuple[SetResult, ...]
    checks: tuple[RelationCheck, ...]
    sweeps: tuple[SweepResult, ...]


def hides_sticker(case: FollowUpCase) -> bool:
    return bool((case.source.labels[case.hidden] == ObjectClass.STICKER).any())


def with_replies(sets: Sequence[CaseSet], log: AnswerLog) -> list[AnsweredSet]:
    result = []
    keys: dict[int, str] = {}
    for cases in sets:
        sources = tuple({c.source_id: c.source for c in cases.cases}.values())
        for item in sources:
            if item.image_id not in keys:
                keys[item.image_id] = source_question(item).key
        place = {item.image_id: number for number, item in enumerate(sources)}
        result.append(
            AnsweredSet(
                cases,
                tuple(log[case_question(case).key] for case in cases.cases),
                sources,
                tuple(log[keys[item.image_id]] for item in sources),
                np.array([place[c.source_id] for c in cases.cases]),
            )
        )
    return result


def evaluate(
    spec: Specification,
    source: Sequence[Judged],
    sets: Sequence[AnsweredSet],
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluated:
    """Performance, distances, checks and sweeps of ``sets``.

    ``source``: all source images, for the table of performance.

    ``progress`` is called with the pieces of work done and their number. The result does not depend on ``jobs``.
    """
    sweeps: dict[str, list[AnsweredSet]] = {}
    for one in sets:
        if one.cases.kind == "sweep":
            sweeps.setdefault(one.cases.circumstance, []).append(one)
    plain = [one for one in sets if one.cases.kind != "sweep"]
    work: list[tuple[Specification, list[AnsweredSet]]] = [(spec, [one]) for one in plain]
    work += [(spec, several) for several in sweeps.values()]
    found: list[SetResult] = [
        SetResult(
            kind="source",
            circumstance="",
            strength=float("nan"),
            figures=Performance(source, spec.match_iou, spec.decision_score).figures(),
            distances={},
        )
    ]
    checks: list[RelationCheck] = []
    curves: list[SweepResult] = []
    progress(0, len(work))
    for done, part in enumerate(mapped(_evaluate_part, work, jobs), 1):
        found += part.sets
        checks += part.checks
        curves += part.sweeps
        progress(done, len(work))
    return Evaluated(tuple(found), tuple(checks), tuple(curves))


def _evaluate_part(work: tuple[Specification, list[AnsweredSet]]) -> Evaluated:
    spec, sets = work
    results = tuple(_set_result(spec, one) for one in sets)
    if sets[0].cases.kind == "sweep":
        return Evaluated(
            results,
            (),
            sweep_result(
                spec, sets[0].cases.circumstance, [(one.cases.strength, one.paired(spec)) for one in sets]
            ),
        )
    return Evaluated(results, tuple(_checks(spec, sets[0])), ())


def _set_result(spec: Specification, one: AnsweredSet) -> SetResult:
    return SetResult(
        kind=one.cases.kind,
        circumstance=one.cases.circumstance,
        strength=one.cases.strength,
        figures=one.paired(spec).target.figures(),
        distances=one.all_distances(),
    )


def _checks(spec: Specification, one: AnsweredSet) -> Iterator[RelationCheck]:
    paired = one.paired(spec)
    name = one.cases.circumstance or WHOLE
    significance = spec.circumstance(name).significance if one.cases.circumstance else mean_significance(spec)
    metrics = list(spec.relations)
    weights = resampled_weights(len(paired.source.images), spec.resamples, spec.seed)
    before = bootstrap(paired.source, metrics, weights)
    after = bootstrap(paired.target, metrics, weights[:, paired.origin])
    for metric in metrics:

        def epsilon(distance: float, metric: str = metric) -> float:
            return spec.epsilon(metric, distance, significance)

        yield check_relation(
            paired,
            metric,
            epsilon,
            name,
            confidence=spec.confidence,
            resamples=spec.resamples,
            seed=spec.seed,
            values=(before[metric], after[metric]),
        )


def mean_significance(spec: Specification) -> float:
    """Significance of the target set: mean over its circumstances, weighted by how often they occur."""
    able = [c for c in spec.circumstances if c.transformation is not None]
    total = sum(c.frequency for c in able)
    return sum(c.significance * c.frequency for c in able) / total if total else 1.0
