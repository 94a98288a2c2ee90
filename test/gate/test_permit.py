# SPDX-License-Identifier: Apache-2.0
"""The arm's side of the gate."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate.permit import Lease, PermitWatch


def test_a_permit_is_for_one_object_of_one_decision():
    watch = PermitWatch(lambda: 100)
    watch.update(Lease("d", 1, 200))
    assert "object 1" in watch.refusal("d", 2)
    assert "decision d" in watch.refusal("e", 1)
    assert not watch.has_expired("d", 2)


@given(until=st.integers(-5, 5), now=st.integers(-5, 5), decision=st.sampled_from(["", "d"]))
def test_no_clock_no_name_no_permit(until, now, decision):
    assert Lease(decision, 0, until).allows(decision, 0, now) == (decision != "" and 0 < now < until)


def test_waiting_ends_when_the_permit_arrives_and_when_it_does_not():
    watch = PermitWatch(lambda: 100)
    arrives = threading.Timer(0.05, watch.update, [Lease("d", 1, 200)])
    arrives.start()
    assert watch.wait_until_allowed("d", 1, timeout_s=30.0) == ""
    arrives.join()
    assert watch.wait_until_allowed("d", 2, timeout_s=0.01) != ""


def test_a_clock_that_is_put_back_makes_no_permit_longer():
    clock, steady = [1_000], [50.0]
    watch = PermitWatch(lambda: clock[0], lambda: steady[0])
    watch.update(Lease("d", 1, 2_000, lease_s=0.5))
    assert watch.refusal("d", 1) == ""
    clock[0], steady[0] = 1, 50.4
    assert watch.refusal("d", 1) == ""
    steady[0] = 50.6
    assert watch.refusal("d", 1) == "the permit expired 100 ms ago"
    assert watch.has_expired("d", 1)


def test_a_loss_voids_the_permit_and_is_counted():
    watch = PermitWatch(lambda: 100)
    watch.update(Lease("d", 1, 200))
    assert watch.losses == 0
    watch.lose()
    assert watch.refusal("d", 1) == "the gate is closed"
    assert watch.losses == 1
    watch.update(Lease("d", 1, 200))
    assert watch.refusal("d", 1) == ""
