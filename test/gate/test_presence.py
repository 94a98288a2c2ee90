# SPDX-License-Identifier: Apache-2.0
"""Two supervisors in one cell: both are heard, the arm obeys neither."""

from sticker_uq.gate.permit import Lease, PermitWatch
from sticker_uq.gate.presence import QUIET_S, GatePublishers, Heartbeat


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_speaker_is_forgotten_when_it_falls_silent_or_stands_by():
    clock = Clock()
    publishers = GatePublishers(clock)
    publishers.received("a", active=True)
    publishers.received("b", active=True)
    assert publishers.present() == ["a", "b"]
    assert publishers.besides("a") == ["b"]
    clock.now += QUIET_S - 0.1
    publishers.received("a", active=True)
    clock.now += 0.1
    assert publishers.present() == ["a"]
    publishers.received("a", active=False)
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
    publishers.received("own", active=True)
    assert publishers.never_received("own", 0) == 0
    assert publishers.never_received("own", 1) == 1
    publishers.received("a", active=True)
    assert publishers.never_received("own", 1) == 0
    assert publishers.never_received("own", 2) == 1
    clock.now += QUIET_S  # it is still there and says nothing any more
    assert publishers.never_received("own", 1) == 1


def test_one_that_stands_by_need_not_speak_again_until_it_has_gone():
    clock = Clock()
    publishers = GatePublishers(clock)
    publishers.received("own", active=False)
    publishers.received("a", active=False)
    clock.now += 10 * QUIET_S
    assert publishers.never_received("own", 1) == 0
    assert publishers.never_received("own", 2) == 1
    # it has gone: the next one that comes must be heard itself
    assert publishers.never_received("own", 0) == 0
    assert publishers.never_received("own", 1) == 1
    publishers.received("own", active=True)
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
