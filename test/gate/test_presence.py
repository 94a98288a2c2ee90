# SPDX-License-Identifier: Apache-2.0
"""Two supervisors in one cell: both are heard, the arm obeys neither."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate.permit import Lease, PermitWatch
from sticker_uq.gate.presence import GHOST_S, QUIET_S, SETTLE_S, GatePublishers, Ghosts, Heartbeat, Succession


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_speaker_is_forgotten_when_it_falls_silent_or_stands_by():
    clock = Clock()
    publishers = GatePublishers(clock)
    publishers.note_message("a", active=True)
    publishers.note_message("b", active=True)
    assert publishers.present() == ["a", "b"]
    assert publishers.besides("a") == ["b"]
    clock.now += QUIET_S - 0.1
    publishers.note_message("a", active=True)
    clock.now += 0.1
    assert publishers.present() == ["a"]
    publishers.note_message("a", active=False)
    assert publishers.present() == []


def test_an_arm_obeys_neither_of_two_supervisors():
    watch = PermitWatch(lambda: 1)
    permit = Lease("decision", 1, 10)
    watch.update(permit, "a")
    assert watch.refusal("decision", 1) == ""
    watch.update(permit, "b")
    assert "2 gate publishers: a, b" in watch.refusal("decision", 1)


def test_a_supervisor_that_stands_by_does_not_disturb():
    watch = PermitWatch(lambda: 1)
    watch.update(Lease("decision", 1, 10), "a")
    watch.update(None, "b", active=False)
    assert watch.refusal("decision", 1) == ""
    watch.update(None, "a", active=False)
    assert watch.refusal("decision", 1) == "the gate is closed"


def test_publishers_that_nobody_heard_are_counted():
    clock = Clock()
    publishers = GatePublishers(clock)
    publishers.note_message("own", active=True)
    assert publishers.never_received("own", 0) == 0
    assert publishers.never_received("own", 1) == 1
    publishers.note_message("a", active=True)
    assert publishers.never_received("own", 1) == 0
    assert publishers.never_received("own", 2) == 1
    clock.now += QUIET_S  # it is still there and says nothing any more
    assert publishers.never_received("own", 1) == 1


def test_one_that_stands_by_need_not_speak_again_until_it_has_gone():
    clock = Clock()
    publishers = GatePublishers(clock)
    publishers.note_message("own", active=False)
    publishers.note_message("a", active=False)
    clock.now += 10 * QUIET_S
    assert publishers.never_received("own", 1) == 0
    assert publishers.never_received("own", 2) == 1
    # it has gone: the next one that comes must be heard itself
    assert publishers.never_received("own", 0) == 0
    assert publishers.never_received("own", 1) == 1
    publishers.note_message("own", active=True)
    assert publishers.never_received("own", 1) == 1


def test_silence_is_counted_in_looks():
    pulse = Heartbeat(patience=3)
    assert not pulse.alone
    assert not pulse.beat("a")
    pulse.tick()
    pulse.tick()
    assert pulse.alone
    assert not pulse.beat("a")
    pulse.tick()
    pulse.tick()
    assert pulse.alone
    pulse.tick()
    assert not pulse.alone
    assert not pulse.beat("a")
    assert pulse.alone


def test_after_a_death_each_must_speak_anew():
    pulse = Heartbeat(patience=3)
    pulse.beat("a")
    pulse.lost()
    assert not pulse.alone
    assert not pulse.beat("a")
    assert pulse.alone


def test_another_arm_is_told_from_the_one_before_and_two_are_too_many():
    pulse = Heartbeat(patience=2)
    pulse.beat("a")
    assert pulse.beat("b")
    assert not pulse.alone
    pulse.tick()
    assert not pulse.beat("b")
    pulse.tick()
    assert pulse.alone
    assert pulse.beat("a")


def succession(*steps: tuple[str, int, int], clock: Clock | None = None) -> Succession:
    made = Succession(clock or Clock())
    for kind, a, b in steps:
        made.note_matched(a, b) if kind == "matched" else made.note_message(a)
    return made


def test_one_publisher_whose_messages_go_on_is_settled():
    numbers = (("received", n, 0) for n in (4, 5, 9))
    assert succession(("matched", 0, 0), ("matched", 1, 1), *numbers, ("matched", 1, 0)).is_settled


@pytest.mark.parametrize(
    "steps",
    [
        [("matched", 1, 1), ("matched", 2, 2)],
        [("matched", 1, 1), ("matched", 2, 1)],  # came and went before anybody looked
        [("matched", 1, 1), ("matched", 1, 0), ("matched", 2, 1)],  # took the place of the first
        [("matched", 2, 2)],
        [("matched", 2, 1)],
        [("matched", 1, 1), ("received", 7, 0), ("received", 1, 0)],  # sent before its match was told
        [("matched", 1, 1), ("received", 1, 0), ("received", 1, 0)],
    ],
)
def test_another_publisher_is_noticed_however_short_it_lives(steps):
    clock = Clock()
    found = succession(*steps, clock=clock)
    assert not found.is_settled
    clock.now += SETTLE_S - 0.01
    assert not found.is_settled
    clock.now += 0.01
    assert found.is_settled


def test_the_one_that_takes_the_place_of_another_counts_from_one():
    clock = Clock()
    found = succession(("matched", 1, 1), ("received", 70, 0), ("matched", 2, 1), clock=clock)
    clock.now += SETTLE_S
    found.note_message(1)
    found.note_message(2)
    assert found.is_settled
    found.note_message(71)
    found.note_message(3)
    assert not found.is_settled


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 2)), max_size=30))
def test_nothing_settles_within_the_time_after_a_publisher_has_come(events):
    """Some come beside the first one for no time at all, between messages of it, at any times."""
    clock = Clock()
    watched = Succession(clock)
    watched.note_matched(1, 1)
    ever, last = 1, -float("inf")
    for number, (another, pause) in enumerate(events, 1):
        clock.now += pause
        if another:
            ever, last = ever + 1, clock.now
        watched.note_matched(ever, 1)
        watched.note_message(number)
        assert watched.is_settled == (clock.now - last >= SETTLE_S)
        assert watched.changes == ever - 1


def test_a_subscription_that_is_made_anew_keeps_its_one_publisher_only():
    same = succession(("matched", 1, 1), ("received", 3, 0))
    same.note_renewal()
    same.note_matched(1, 1)
    same.note_message(4)
    assert same.is_settled
    other = succession(("matched", 1, 1), ("received", 3, 0), ("matched", 1, 0))
    other.note_renewal()
    assert not other.is_settled
    before_any = succession(("matched", 1, 0))
    before_any.note_renewal()
    assert before_any.is_settled


def test_a_match_that_nobody_knows_for_long_is_a_ghost():
    clock = Clock()
    ghosts = Ghosts(clock)
    assert not ghosts.has_lasted(2, 1)
    clock.now += GHOST_S - 1
    assert not ghosts.has_lasted(1, 1)  # it was only slow to be named
    assert not ghosts.has_lasted(2, 1)
    clock.now += GHOST_S - 0.01
    assert not ghosts.has_lasted(2, 1)
    clock.now += 0.01
    assert ghosts.has_lasted(3, 2)
