# SPDX-License-Identifier: Apache-2.0
"""What is measured on a laptop was fitted to others, and the counts of the parts are those of all."""

import numpy as np
import pytest

from benchmarks import finished
from sticker_uq.calibration.records import Record
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import LeftScore, LeftTerm
from sticker_uq.scene import ObjectClass
from sticker_uq.testing.scenes import assessment, object_at

OPEN = Policy(max_dil=1.0, max_dil_clean=1.0)


@pytest.fixture
def records():
    """22 laptops with a sticker, which every third shows twice; on every fifth picture it is seen as background."""
    found = []
    for number in range(30):
        hidden = number % 5 == 0
        label, vector = ObjectClass.STICKER, (0.02, 0.01, 0.97)
        if hidden:
            label, vector = ObjectClass.BACKGROUND, (0.85, 0.05, 0.1)
        one = object_at((10, 10, 50, 50), label=label, probabilities=vector)
        boxes = np.array([[10, 10, 50, 50]], np.float32)
        name = f"laptop {number if number % 3 else max(number - 1, 0)}"
        found.append(Record(str(number), boxes, np.array([2]), assessment(one), name))
    return found


def test_no_laptop_is_measured_by_what_was_fitted_to_it(records, monkeypatch):
    monkeypatch.setattr(finished, "fitted", lambda known, base, signals: known)
    parts = list(finished.held_out(records, OPEN, ()))
    assert len(parts) == finished.PARTS
    assert sorted(number for _, numbers in parts for number in numbers) == list(range(30))
    for known, numbers in parts:
        assert not {one.workpiece for one in known} & {records[number].workpiece for number in numbers}
        assert len(known) + len(numbers) == 30


def test_the_score_of_what_is_left_asks_about_what_the_limit_lets_leave(records):
    parts = [(OPEN, list(range(10))), (OPEN, list(range(10, 30)))]
    whole = finished.counted([(OPEN, list(range(30)))], records, set(range(30)))
    assert (
        finished.counted(parts, records, set(range(30)))["end with a question, %"]
        == whole["end with a question, %"]
    )
    assert whole["of these keep a sticker, %"].split()[0] != "0.0"
    terms = (LeftTerm(signal="any_sticker", knots=(0.0, 0.2), log_odds=(0.0, 8.0)),)
    scored = OPEN.model_copy(update={"left": LeftScore(intercept=-6.0, terms=terms)})
    strict = finished._limited(scored, finished.SCORE, 0.02)
    asked = finished.counted([(strict, list(range(30)))], records, set(range(30)))
    assert asked["of these keep a sticker, %"].split()[0] == "0.0"
    assert asked["finished alone"] < whole["finished alone"]
    assert finished._limited(scored, finished.LIKELIEST, 0.5).left is None
