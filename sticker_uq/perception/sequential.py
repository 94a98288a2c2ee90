"""When to stop sampling: as soon as the remaining passes can hardly change what will be decided.

Sequential sampling in the sense of Wald (1945) with a known end. After n of T passes every number that a decision rests on is
given intervals for its value after T passes, from narrow to wide, and the decision is asked about the corners, where every object
is as sure or as unsure as its intervals allow. How far its numbers can move before its verdict changes, whether it lies close to
others, and whether a pass saw it twice tell how probably the verdict about an object changes
(:mod:`sticker_uq.perception.changes`). What is gained by stopping is passes: the more remain, the more changes are accepted.

Scores of a panel of monitors rest on the passes too, on class vectors or on where the mean box lies, and nothing is known of
their distribution: any score may follow. So where a supervisor could change the decision all passes are made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

import numpy as np

from sticker_uq.perception.changes import (
    UNMOVED,
    WIDTHS,
    Kind,
    chance,
    kind_of,
    object_features,
    places,
    scene_features,
)
from sticker_uq.perception.forecast import Forecast
from sticker_uq.scene import (
    FloatArray,
    InvalidInput,
    MonitorScore,
    ObservedObject,
    SceneAssessment,
    StochasticSamples,
)
from sticker_uq.uncertainty import image_uncertainty

Decide = Callable[[SceneAssessment], tuple[Hashable, Mapping[int, Hashable]]]
"""What follows from a scene, to be compared: for the scene as a whole, and for each of its objects by its id."""

_STEP = 2  # passes between two looks at the decision
_ANY_SCORE = 1e300  # beyond every limit, and still a number


def step_after(taken: int, least: int, most: int) -> int:
    """How many passes to make before the next look at the decision, with ``taken`` made, of ``least`` to ``most``."""
    if taken >= most:
        raise InvalidInput(f"{taken} passes are made, expected fewer than {most}")
    return min(least if taken == 0 else _STEP, most - taken)


def joined(first: StochasticSamples, then: StochasticSamples) -> StochasticSamples:
    """The passes of ``first`` and after them those of ``then``."""
    return StochasticSamples(
        np.concatenate([first.boxes, then.boxes]),
        np.concatenate([first.probabilities, then.probabilities]),
        np.concatenate([first.pass_index, then.pass_index + first.passes]),
        first.passes + then.passes,
    )


def should_stop(
    scene: SceneAssessment,
    samples: StochasticSamples,
    most: int,
    min_cluster_size: int,
    error: float,
    decide: Decide,
    limits: Mapping[str, float] | None = None,
) -> bool:
    """Whether what ``decide`` says of ``scene``, seen in the passes of ``samples``, will hardly change until ``most`` passes.

    That is where the number of verdicts that are expected to change is at most ``error`` times the share of the passes that
    remain. ``min_cluster_size``: passes that make an object a clustered one; ``limits``: those of the panel of monitors by
    name, of which every score is possible.
    """
    outlook = StoppingRule(scene, samples, most, min_cluster_size, decide)
    if limits and outlook.heard_differently(limits):
        return False
    return outlook.expected_changes() <= error * (most - samples.passes) / most


class StoppingRule:
    """What the decision about ``scene`` after some of ``most`` passes says about the one after all of them."""

    def __init__(
        self,
        scene: SceneAssessment,
        samples: StochasticSamples,
        most: int,
        min_cluster_size: int,
        decide: Decide,
    ) -> None:
        self._scene, self._decide, self._cluster = scene, decide, min_cluster_size
        self._taken, self._left = samples.passes, most - samples.passes
        self._objects = scene.objects + scene.unstable
        self._forecasts = [Forecast(o, samples, most) for o in self._objects]
        self._places = places(self._objects, samples, scene.image_size)
        self._now = decide(scene)

    def expected_changes(self) -> float:
        """Number of verdicts that are expected to change in the passes that remain; the outcome counts as one of them."""
        return sum(chance(kind, features) for kind, features in self.features())

    def features(self) -> list[tuple[Kind, FloatArray]]:
        """What the chance of each object and, at the end, of the scene rests on."""
        whole, levels = self._levels()
        twice = self._matters_twice()
        found: list[tuple[Kind, FloatArray]] = [
            (
                kind_of(o, levels[o.id]),
                object_features(o, place, self._taken, self._left, levels[o.id], twice[o.id]),
            )
            for o, place in zip(self._objects, self._places, strict=True)
            if o.id in levels
        ]
        kinds = [kind for kind, _ in found]
        counts = len(kinds), kinds.count("twice"), kinds.count("seldom")
        found.append(("scene", scene_features(*counts, self._left, whole)))
        return found

    def heard_differently(self, limits: Mapping[str, float]) -> bool:
        """Whether scores of monitors could change what is decided now, or at the corners of what may come."""
        for sure in (True, False):
            said = [self._decide(self._corner(max(WIDTHS), sure, limits, low)) for low in (True, False)]
            if said[0] != said[1]:
                return True
        heard = (tuple(_heard(o, limits, low) for o in self._scene.objects) for low in (True, False))
        return any(self._decide(replace(self._scene, objects=objects)) != self._now for objects in heard)

    def _levels(self) -> tuple[int, dict[int, int]]:
        """How far the outcome, all verdicts as they are, and the verdicts by object are from changing.

        0 if they change at both ends of the narrowest intervals, i + 1 if WIDTHS[i] are the narrowest at one end of which they
        change, UNMOVED if they do at none.
        """
        outcome, verdicts = self._now
        whole, levels = UNMOVED, dict.fromkeys(verdicts, UNMOVED)
        quiet = False
        for level in reversed(range(len(WIDTHS))):
            # within narrower intervals nothing changes either, unless it has limits on both sides: then the narrowest tells
            if quiet and level:
                continue
            ends = [self._decide(self._corner(WIDTHS[level], sure)) for sure in (True, False)]
            moved = {key: sum(end.get(key) != now for _, end in ends) for key, now in verdicts.items()}
            # an outcome that changes with a verdict is told by that object
            turned = sum(end != outcome and found == verdicts for end, found in ends)
            quiet = not turned and not any(moved.values())
            if turned:
                whole = _level(level, turned)
            levels.update({key: _level(level, count) for key, count in moved.items() if count})
        return whole, levels

    def _matters_twice(self) -> dict[int, bool]:
        """Whether the verdict of each object would change if a pass saw it twice."""
        verdicts = self._now[1]
        if all(o.duplicated for o in self._scene.objects):
            return dict.fromkeys(verdicts, False)
        seen_twice = tuple(replace(o, duplicated=True) for o in self._scene.objects)
        then = self._decide(replace(self._scene, objects=seen_twice))[1]
        return {key: then.get(key) != verdict for key, verdict in verdicts.items()}

    def _corner(
        self, width: float, sure: bool, limits: Mapping[str, float] | None = None, low: bool = True
    ) -> SceneAssessment:
        """The scene with every object at one end of its intervals. Those that may become clustered ones have become it."""
        objects: list[ObservedObject] = []
        unstable: list[ObservedObject] = []
        for forecast in self._forecasts:
            clustered = not forecast.object.unstable or forecast.most_seen(width) >= self._cluster
            moved = forecast.at(width, sure, clustered)
            if clustered:
                objects.append(moved if limits is None else _heard(moved, limits, low))
            else:
                unstable.append(moved)
        # the metrics of those that were not clustered are unknown: they would drown the means
        measured = tuple(objects[: len(self._scene.objects)])
        return replace(
            self._scene,
            objects=tuple(objects),
            unstable=tuple(unstable),
            uncertainty=image_uncertainty(measured, len(unstable)),
        )


def _level(index: int, ends: int) -> int:
    return 0 if index == 0 and ends == 2 else index + 1


def _heard(observed: ObservedObject, limits: Mapping[str, float], low: bool) -> ObservedObject:
    """``observed`` with the lowest scores that monitors could ever give if ``low``, with the highest otherwise."""
    score = -_ANY_SCORE if low else _ANY_SCORE
    return replace(
        observed, monitors=tuple(MonitorScore(name, score, limit) for name, limit in limits.items())
    )
