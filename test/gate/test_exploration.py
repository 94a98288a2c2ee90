# SPDX-License-Identifier: Apache-2.0
"""Every order of three events and a sixth of those of four: from the start and from the middle of each phase, a witness sees
each step.

GATE_EXPLORATION_DEPTH explores every order up to that depth.
"""

import os
from collections import Counter

import pytest

from sticker_uq.gate import BlockReason, Phase, step
from sticker_uq.gate import events as ev
from sticker_uq.testing.scenes import SIZE
from test.helpers.exploration import ALPHABET, MOMENT, PAUSE, Node, always, explore, scene, written
from test.helpers.gate import SETTINGS, K

pytestmark = pytest.mark.timeout(900)  # hundreds of thousands of steps: a while on a busy machine

DEPTH = int(os.environ.get("GATE_EXPLORATION_DEPTH", "4"))
THINNED = 1 if "GATE_EXPLORATION_DEPTH" in os.environ else 6


@pytest.fixture(scope="module")
def reached() -> list[Node]:
    """Every reachable state; the witness has seen each step on the way and has not complained."""
    return [node for ring in explore(DEPTH, THINNED) for node in ring]


def test_no_order_of_events_breaks_a_rule(reached):
    phases = Counter(node.state.phase for node in reached)
    assert set(phases) == set(Phase) - {Phase.UNKNOWN}
    assert len(reached) > min(4_000, 10**DEPTH)
    assert any(
        node.state.open and node.state.permit.target.by_operator for node in reached if node.state.permit
    )


def test_noise_does_not_close_what_a_clear_contradiction_closes(reached):
    """One scene that doubts the object slightly keeps the gate open, K in a row or one that contradicts close it."""
    tried = 0
    for node in reached:
        permit = node.state.permit
        if not node.state.open or permit is None or permit.target.by_operator or permit.doubts:
            continue
        if node.state.reference is None or node.state.reference.image_size != SIZE:
            continue
        tried += 1
        doubted = node
        for _ in range(K - 1):
            later = doubted.follow(*ALPHABET["scene: slightly unsure"])
            assert later.state.open, later.state.details
            doubted = later
        assert not doubted.follow(*ALPHABET["scene: slightly unsure"]).state.open
        for name in ("unsure", "logo", "logo over it", "failed", "dark", "other size"):
            assert not node.follow(*ALPHABET[f"scene: {name}"]).state.open, name
    assert tried >= DEPTH


def test_only_a_person_ends_a_stop_that_called_one(reached):
    """No event but a person's own, or another workpiece, opens the gate or the question after a call or a fault."""
    persons = ("person:", "reset", "release", "workpiece")
    for node in reached[::13]:
        if node.state.request is None and not node.state.fault:
            continue
        for name, (make, duration) in ALPHABET.items():
            after = None if name.startswith(persons) else node.follow(make, duration)
            if after is None:
                continue
            assert not after.state.open, name
            assert bool(after.state.fault) >= bool(node.state.fault), name
            asks = after.state.request is not None or (name == "restart" and bool(after.state.fault))
            assert asks or node.state.request is None


def test_only_a_person_sends_the_arm_again_to_where_it_reported_a_removal(reached):
    """The witness sees every permit; here a person looks again, which permits nothing, or says that it is a sticker."""
    tried = 0
    for node in reached:
        state = node.state
        if state.request is None or state.phase is not Phase.INTERVENTION:
            continue
        if not state.removed or state.reference is None or state.reference.image_size != SIZE:
            continue  # the places were those of another camera's images
        for answer in ("person: remove", "person: look again"):
            later: Node | None = node
            for name in (answer, *["scene: sticker"] * (K + 1)):
                later = later.follow(*ALPHABET[name])
            opened = later.state.goals > state.goals
            assert not opened or answer == "person: remove"
            tried += opened
    assert tried


def test_no_restart_opens_what_only_a_person_or_another_laptop_opens(reached):
    """Nor does one forget the goal of an arm that has said nothing of its end. The witness sees each step."""
    tried = Counter()
    for node in reached[::5]:
        state = node.state
        closed = {
            "held": state.held,
            "fault": bool(state.fault),
            "question": state.request is not None,
            "by hand": state.skipped,
            "no id": state.refused is not None,
            "clean": state.memory.scene_clean,
            "goal": state.permit is not None,
            "left": bool(state.memory.prohibitions().answers),
        }
        later = node.follow(*ALPHABET["restart"])
        for name in ("activated", "arm comes", "detectors: one", *["scene: sticker"] * (K + 2)):
            later = later.follow(*ALPHABET[name])
        once = node.follow(*ALPHABET["restart"])
        assert written(once.follow(*ALPHABET["restart"]).state) == written(once.state)
        tried.update(name for name, is_so in closed.items() if is_so)
        tried["opened"] += later.state.open
        assert not (later.state.open and any(closed.values())), [name for name in closed if closed[name]]
    assert len(tried) == 9, tried


def test_from_every_state_one_hold_closes(reached):
    for node in reached:
        held = node.follow(always(ev.Hold()), MOMENT)
        assert not held.state.open
        assert held.witness.wire is None or not held.witness.wire.state.open


def test_every_open_state_closes_when_nothing_more_is_heard(reached):
    for node in reached:
        if node.state.open:
            assert not node.follow(always(ev.Tick()), PAUSE).state.open


def test_no_state_is_a_dead_end(reached):
    """People, an arm that answers and new workpieces bring the gate back to a permit from everywhere."""
    for node in reached[::11]:
        state, now = node.state, node.now
        events: list[ev.Event] = [ev.Activated(), ev.Release(), ev.ArmReady(True)]
        events += [ev.Impediment(BlockReason.SECOND_SCENE_PUBLISHER, None)]
        events += [
            ev.RemovalFinished(state.goals, ev.RemovalCode.MOTION_FAILED),
            ev.Reset(),
            ev.WorkpieceChanged("new", now),  # older than the one before, where the clock was put back
            ev.WorkpieceChanged("next", now + 1),
        ]
        for event in events:
            now += MOMENT
            state, _ = step(state, event, now, SETTINGS)
        for _ in range(K + 2):
            now += 2 * MOMENT
            event = scene("sticker")(state, now)
            assert event is not None
            state, _ = step(state, event, now, SETTINGS)
        assert state.phase is Phase.PERMITTED, node.state
