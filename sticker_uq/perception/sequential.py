"""When to stop sampling: as soon as the remaining passes can hardly change what will be decided.

Sequential sampling in the sense of Wald (1945) with a known end: after n of T passes every number that a decision rests on is
given the interval in which its value after T passes lies at the stated error probability. The decision is asked about the scene
as it is and about its corners, where every object is as sure and as unsure as its intervals allow. Decisions are monotone in
these numbers, so one that is the same in all corners is the same between them.

Scores of a panel of supervisors rest on the passes too, on class vectors or on where the mean box lies, and nothing is known of
their distribution: any score may follow. So where a supervisor could change the decision all passes are made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
from scipy.stats import betabinom, norm
from scipy.stats import t as student

from sticker_uq.scene import (
    FloatArray,
    InvalidInput,
    ObservedObject,
    SceneAssessment,
    StochasticSamples,
    SupervisorScore,
)
from sticker_uq.uncertainty import iou_matrix

Decide = Callable[[SceneAssessment], Hashable]
"""What follows from a scene, to be compared: equal values are the same decision."""

_SAME_THING = 0.5  # IoU from which a box counts as one of an object's
_PRIOR = 0.5  # Jeffreys' prior of a share
_ANY_SCORE = 1e300  # beyond every limit, and still a number
_HULL_OFFSET = (
    0.8  # the area of the hull of n normal points grows like ln(n) - 0.8, within 3 % for 4 to 40 points
)


def step_after(taken: int, least: int, most: int) -> int:
    """How many passes to make before the next look at the decision, with ``taken`` made, of ``least`` to ``most``."""
    if taken >= most:
        raise InvalidInput(f"{taken} passes are made, expected fewer than {most}")
    return min(least if taken == 0 else max(2, least // 2), most - taken)


def joined(first: StochasticSamples, then: StochasticSamples) -> StochasticSamples:
    """The passes of ``first`` and after them those of ``then``."""
    return StochasticSamples(
        np.concatenate([first.boxes, then.boxes]),
        np.concatenate([first.probabilities, then.probabilities]),
        np.concatenate([first.pass_index, then.pass_index + first.passes]),
        first.passes + then.passes,
    )


def settled(
    scene: SceneAssessment,
    samples: StochasticSamples,
    most: int,
    min_cluster_size: int,
    error: float,
    decide: Decide,
    limits: Mapping[str, float] | None = None,
) -> bool:
    """Whether ``decide`` says of ``scene``, seen in the passes of ``samples``, what it would say after ``most`` passes.

    Never while a pass saw an object twice: further passes tell whether it is one thing or two, which no interval describes.
    ``error``: probability that a number leaves its interval, for each number of each object; ``min_cluster_size``: passes that
    make an object a clustered one; ``limits``: those of the panel of supervisors by name, of which every score is possible.
    """
    votes = limits or {}
    if any(o.duplicated for o in scene.objects):
        return False
    decision = decide(scene)
    intervals = [_Interval(o, samples, most, error) for o in scene.objects]
    seldom = [_Interval(o, samples, most, error) for o in scene.unstable]
    # a high score of a supervisor may be a doubt or settle one: it goes with the sure numbers of an object and the unsure ones
    corners = tuple(product((True, False), (True, False) if votes else (True,)))
    for sure, low in corners:
        objects = tuple(_heard(i.corner(sure), votes, low) for i in intervals)
        unstable = tuple(i.seldom(sure) for i in seldom)
        if decide(replace(scene, objects=objects, unstable=unstable)) != decision:
            return False
    # an object that may become a clustered one has no measured numbers yet: it may turn out as sure as any
    rising = [i for i in seldom if i.most_seen >= min_cluster_size]
    for sure, low in corners if rising else ():
        risen = tuple(_heard(i.risen(sure), votes, low) for i in rising)
        if _of(decide, scene, scene.objects + risen, rising) != decision:
            return False
    return True


def _of(
    decide: Decide, scene: SceneAssessment, objects: Sequence[ObservedObject], risen: Sequence[_Interval]
) -> Hashable:
    left = tuple(o for o in scene.unstable if o.id not in {i.object.id for i in risen})
    return decide(replace(scene, objects=tuple(objects), unstable=left))


def _heard(observed: ObservedObject, limits: Mapping[str, float], low: bool) -> ObservedObject:
    """``observed`` with the lowest scores that supervisors could ever give if ``low``, with the highest otherwise."""
    score = -_ANY_SCORE if low else _ANY_SCORE
    return replace(
        observed, supervisors=tuple(SupervisorScore(name, score, limit) for name, limit in limits.items())
    )


class _Interval:
    """What an object seen in some passes may look like after all of them."""

    def __init__(self, observed: ObservedObject, samples: StochasticSamples, most: int, error: float) -> None:
        self.object = observed
        self._error = error
        taken, seen = samples.passes, observed.passes
        low, high = _share(most - taken, seen, taken, error)
        self._rates = (seen + low) / most, (seen + high) / most
        self.most_seen = seen + high
        rows = iou_matrix(observed.box[None], samples.boxes)[0] >= _SAME_THING
        self._boxes = np.asarray(samples.boxes[rows], np.float64)
        self._vectors = np.asarray(samples.probabilities[rows], np.float64)
        self._vectors /= self._vectors.sum(axis=1, keepdims=True)
        count = max(len(self._boxes), 1)
        expected = max(count * most / taken, count + 1e-9)
        quantile = _quantile(count, error)
        # standard deviation of the difference between the mean of these boxes and that of all after the last pass
        self._scale = quantile * float(np.sqrt(1 / count - 1 / expected))
        self._count, self._expected = count, expected

    def corner(self, sure: bool) -> ObservedObject:
        """The object with every number as good, or as bad, as its interval allows."""
        o, sign = self.object, -1.0 if sure else 1.0
        mean = self._vectors.mean(axis=0)
        label = int(o.label)
        logs = -np.log2(np.maximum(self._vectors, 1e-12))
        own = (self._vectors * logs).sum(axis=1)
        cross = self._vectors @ -np.log2(np.maximum(mean, 1e-12))
        growth = self._unbiased(self._expected) / self._unbiased(self._count)
        spread = ((self._boxes - self._boxes.mean(axis=0)) ** 2).sum(axis=1)
        relative = self._half(spread) / max(float(spread.mean()), 1e-12)
        hull = (np.log(self._expected) - _HULL_OFFSET) / max(np.log(self._count) - _HULL_OFFSET, 0.1)
        information = max(
            0.0, o.mutual_information * (growth if not sure else 1.0) + sign * self._half(cross - own)
        )
        variance = max(0.0, 1.0 + sign * relative) * (growth if not sure else 1.0)
        surface = max(0.0, 1.0 + sign * relative) * (max(hull, 1.0) if not sure else 1.0)
        return replace(
            o,
            probabilities=_shifted(o.probabilities, label, -sign * self._half(self._vectors[:, label])),
            detection_rate=self._rates[1] if sure else self._rates[0],
            variation_ratio=self._variation(mean, label, sure),
            shannon_entropy=max(0.0, o.shannon_entropy + sign * self._half(cross)),
            mutual_information=information,
            total_variance=o.total_variance * variance,
            relative_total_variance=o.relative_total_variance * variance,
            predictive_surface=o.predictive_surface * surface,
            relative_predictive_surface=o.relative_predictive_surface * surface,
        )

    def seldom(self, sure: bool) -> ObservedObject:
        """An object that too few passes saw, if that remains so, seen as often or as seldom as its interval allows."""
        return replace(self.object, detection_rate=self._rates[1] if sure else self._rates[0])

    def risen(self, sure: bool) -> ObservedObject:
        """The object as a clustered one, without any uncertainty but for its rate if ``sure``, with the worst otherwise."""
        worst = 0.0 if sure else 1e9
        return replace(
            self.object,
            unstable=False,
            detection_rate=self._rates[1],
            variation_ratio=worst,
            shannon_entropy=worst,
            mutual_information=worst,
            total_variance=worst,
            predictive_surface=worst,
            relative_total_variance=worst,
            relative_predictive_surface=worst,
        )

    def _half(self, values: FloatArray) -> float:
        """Half the width of the interval of the mean of ``values`` (K,) after the last pass."""
        deviation = float(values.std(ddof=1)) if len(values) > 1 else float(np.sqrt(0.25))
        return deviation * self._scale

    def _unbiased(self, count: float) -> float:
        """By how much a variance over ``count`` values falls short of the true one."""
        return 1 - 1 / max(count, 2.0)

    def _variation(self, mean: FloatArray, label: int, sure: bool) -> float:
        """Variation ratio after the last pass: the label's share among the new boxes is beta-binomial."""
        o, new = self.object, max(round(self._expected) - self._count, 0)
        agreeing = round((1 - o.variation_ratio) * self._count)
        more = _share(new, agreeing, self._count, self._error)[int(sure)]
        return float(max(0.0, 1 - (agreeing + more) / (self._count + new)))


@lru_cache(maxsize=4096)
def _share(new: int, successes: int, trials: int, error: float) -> tuple[float, float]:
    """Interval of the number of successes among ``new`` trials after ``successes`` in ``trials``, at probability ``error``."""
    if new == 0:
        return 0.0, 0.0
    low, high = betabinom.ppf(
        [error / 2, 1 - error / 2], new, successes + _PRIOR, trials - successes + _PRIOR
    )
    return float(low), float(high)


@lru_cache(maxsize=1024)
def _quantile(count: int, error: float) -> float:
    """Student's quantile for the mean of ``count`` values; three times the normal one for a single value."""
    return float(student.ppf(1 - error / 2, count - 1) if count > 1 else 3 * norm.ppf(1 - error / 2))


def _shifted(vector: FloatArray, label: int, by: float) -> FloatArray:
    """``vector`` (3,) with the probability of ``label`` changed ``by`` so much, the others in proportion."""
    wanted = float(np.clip(vector[label] + by, 0.0, 1.0))
    rest = 1.0 - float(vector[label])
    others = vector * ((1.0 - wanted) / rest) if rest > 1e-9 else np.full(len(vector), (1.0 - wanted) / 2)
    others[label] = wanted
    return np.asarray(others, np.float32)
