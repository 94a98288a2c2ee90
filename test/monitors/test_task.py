# SPDX-License-Identifier: Apache-2.0
"""A cascade of two networks for decisions says remove, ask and keep, and asks where the two contradict each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.monitors import Objects, load_monitor, save_monitor
from sticker_uq.monitors.task_network import TaskCascade, TaskNetwork
from sticker_uq.scene import NO_STICKER, InvalidInput, MonitorScore

CLEAR, DOUBTFUL, NONE = 0.9, 0.5, 0.1


def objects(count: int = 120, seed: int = 0) -> Objects:
    """Crops of three kinds of bars, of which all, half or none of the annotators say that they are stickers."""
    rng = np.random.default_rng(seed)
    fractions = np.array([CLEAR, DOUBTFUL, NONE])[np.arange(count) % 3]
    crops = rng.uniform(0.4, 0.6, (count, 3, 16, 16)).astype(np.float32)
    for kind, channel in ((CLEAR, 0), (DOUBTFUL, 1), (NONE, 2)):
        crops[fractions == kind, channel, 4:12] += 0.4
    return Objects(
        probabilities=np.column_stack([1 - fractions, fractions]), crops=crops, fractions=fractions
    )


@pytest.fixture(scope="module")
def cascade() -> TaskCascade:
    return TaskCascade(0.7, 0.3, epochs=20).fit(objects())


def test_each_kind_gets_its_answer(cascade: TaskCascade, tmp_path: Path) -> None:
    seen = objects(60, seed=1)
    scores = cascade.score(seen)
    votes = [MonitorScore("task_cascade", float(one), 0.5) for one in scores]
    said = ["keep" if v.keeps else "ask" if v.objection else "remove" for v in votes]
    wanted = {CLEAR: "remove", DOUBTFUL: "ask", NONE: "keep"}
    right = np.mean([wanted[f] == s for f, s in zip(seen.fractions, said, strict=True)])
    assert right >= 0.9
    save_monitor(cascade, tmp_path)
    np.testing.assert_array_equal(load_monitor(tmp_path, "task_cascade").score(seen), scores)


def says(threshold: float, share: float) -> TaskNetwork:
    """A network that was only ever shown this ``share``."""
    shown = objects()
    fractions = np.full(len(shown), share)
    return TaskNetwork(threshold, epochs=20).fit(replace(shown, fractions=fractions))


def test_a_contradiction_is_a_question() -> None:
    seen = objects(9)
    always, never = says(0.7, 1.0), says(0.3, 0.0)
    assert (TaskCascade.of(always, never).score(seen) == NO_STICKER).all()
    assert (TaskCascade.of(always, says(0.3, 1.0)).score(seen) < 0.5).all()
    assert (TaskCascade.of(says(0.7, 0.0), never).score(seen) > NO_STICKER).all()


def test_networks_made_one_by_one_are_the_same_cascade(cascade: TaskCascade) -> None:
    one, other = (TaskNetwork(t, epochs=20).fit(objects()) for t in (0.7, 0.3))
    seen = objects(30, seed=2)
    np.testing.assert_array_equal(TaskCascade.of(one, other).score(seen), cascade.score(seen))


def test_the_lower_threshold_is_the_lower_one() -> None:
    with pytest.raises(InvalidInput, match=r"threshold 0\.7 to keep an object: expected less than 0\.3"):
        TaskCascade(0.3, 0.7)
