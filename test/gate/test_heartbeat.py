# SPDX-License-Identifier: Apache-2.0
"""An arm is there as long as it says so, alone."""

from sticker_uq.gate.heartbeat import Heartbeat


def test_silence_is_counted_in_looks() -> None:
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


def test_after_a_death_each_must_speak_anew() -> None:
    pulse = Heartbeat(patience=3)
    pulse.beat("a")
    pulse.lost()
    assert not pulse.alone
    assert not pulse.beat("a")
    assert pulse.alone


def test_another_arm_is_told_from_the_one_before_and_two_are_too_many() -> None:
    pulse = Heartbeat(patience=2)
    pulse.beat("a")
    assert pulse.beat("b")
    assert not pulse.alone
    pulse.tick()
    assert not pulse.beat("b")
    pulse.tick()
    assert pulse.alone
    assert pulse.beat("a")
