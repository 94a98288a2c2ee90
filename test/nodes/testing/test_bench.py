# SPDX-License-Identifier: Apache-2.0
"""A transition is known by its answer, and where that is lost by the node's state."""

from types import SimpleNamespace

import pytest

from sticker_uq.testing.bench import TRIES, Bench


@pytest.mark.parametrize(
    ("answers", "state", "through", "sent"),
    [
        ([True], "active", True, 1),
        ([False], "inactive", False, 1),  # refused, whatever state it is in
        ([None], "inactive", True, 1),  # the answer was lost
        ([None, True], "active", True, 2),  # the request was
        ([None] * TRIES, "active", False, TRIES),
    ],
)
def test_a_lost_request_is_sent_again_and_a_lost_answer_is_not_asked_for_twice(
    monkeypatch, answers, state, through, sent
):
    left = list(answers)

    def call(*_: object) -> SimpleNamespace:
        answer = left.pop(0)
        if answer is None:
            raise AssertionError("did not happen within 30 s")
        return SimpleNamespace(success=answer)

    bench = Bench.__new__(Bench)
    monkeypatch.setattr(bench, "call", call)
    monkeypatch.setattr(bench, "state", lambda _: state)
    assert bench.transition("supervisor", "deactivate") is through
    assert len(answers) - len(left) == sent
