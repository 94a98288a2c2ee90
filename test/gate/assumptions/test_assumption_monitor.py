# SPDX-License-Identifier: Apache-2.0
"""The supervisor closes the gate when what its policy rests on does not hold any more, and keeps it closed."""

from typing import Any

import numpy as np
import pytest

from sticker_uq.gate import (
    Answer,
    AssumptionSettings,
    BlockReason,
    OperatorAnswer,
    Phase,
    Policy,
    SceneAnswer,
)
from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import Box
from sticker_uq.gate.controller import GateController
from sticker_uq.gate.policy.policy_schema import Guarantee, Proof
from sticker_uq.gate.policy.reference import Reference
from sticker_uq.scene import Outcome, SceneAssessment
from sticker_uq.testing.scenes import ELSEWHERE, HERE, MS, START, THERE, assessment, object_at
from test.helpers.gate import SETTINGS, codes


def look(rng: np.random.Generator, number: int, dil: float = 0.0, **changes: Any) -> SceneAssessment:
    return assessment(
        object_at(HERE), dil=dil + float(rng.uniform(0.1, 0.3)), image_digest=f"{number:032x}", **changes
    )


_RNG = np.random.default_rng(0)
REFERENCE = Reference.of(look(_RNG, number) for number in range(100))
POLICY = Policy(reference=REFERENCE, max_dil=1.0, max_dil_clean=1.0)


class Line:
    """A cell to which workpieces come; each is looked at several times."""

    def __init__(self, policy: Policy = POLICY, **watch: Any) -> None:
        self.core = GateController(policy, SETTINGS, AssumptionSettings(**watch))
        self.rng = np.random.default_rng(1)
        self.now, self.count, self.number = START, 0, 0
        self.effects: list[ev.Effect] = []
        self.send(ev.Activated())
        self.send(ev.ArmReady(True))

    def send(self, event: ev.Event) -> tuple[ev.Effect, ...]:
        return self._happened(self.core.handle(event, self.now))

    def _happened(self, effects: tuple[ev.Effect, ...]) -> tuple[ev.Effect, ...]:
        """The arm stops whenever it is told to."""
        self.effects += effects
        for effect in effects:
            if isinstance(effect, ev.CancelGoal):
                self.send(ev.RemovalFinished(effect.goal_id, ev.RemovalCode.PERMIT_REVOKED))
        return effects

    def workpiece(self) -> None:
        self.count += 1
        self.now += 100 * MS
        self.send(ev.WorkpieceChanged(f"laptop-{self.count}", self.now))

    def see(self, times: int = 1, **changes: Any) -> None:
        for _ in range(times):
            self.now += 100 * MS
            self.number += 1
            changes.setdefault("dil", 0.0)
            scene = look(self.rng, 10_000 + self.number, stamp_ns=self.now - MS, **changes)
            self._happened(self.core.on_scene(scene, self.now))

    def laptops(self, count: int, frames: int = 3, **changes: Any) -> int:
        """Let ``count`` workpieces come; how many had come when the gate closed, else ``count``."""
        for number in range(1, count + 1):
            self.workpiece()
            self.see(frames, **changes)
            if self.broken:
                return number
        return count

    def answer(self, scene_answer: SceneAnswer = SceneAnswer.NONE, *answers: tuple[Answer, Box]) -> ev.Reply:
        request = self.core.state.request
        given = tuple(OperatorAnswer(answer, box) for answer, box in answers)
        said = ev.AnswerGiven(request.request_id, "Ada", scene_answer, given, image_ns=request.stamp_ns)
        effects = self.send(said)
        return next(effect for effect in effects if isinstance(effect, ev.Reply))

    @property
    def broken(self) -> bool:
        return bool(self.core.state.reasons & BlockReason.ASSUMPTION)

    def sent(self, kind: type) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]


@pytest.fixture
def broken() -> Line:
    """A line whose light has changed."""
    line = Line()
    assert line.laptops(5) == 5
    assert line.laptops(20, dil=0.5) < 15
    return line


def test_workpieces_like_the_reference_leave_the_gate_alone():
    line = Line()
    assert line.laptops(150) == 150
    assert not line.broken
    assert line.core.watch.workpieces == 150
    assert 0 <= line.core.watch.evidence < 1


def test_the_frames_of_one_laptop_count_once():
    line = Line()
    line.workpiece()
    line.see(40, dil=0.5)
    assert line.core.watch.workpieces == 1
    assert not line.broken


def test_an_image_from_before_the_change_and_a_failed_scene_do_not_count():
    line = Line()
    line.workpiece()
    line.core.on_scene(look(line.rng, 1, stamp_ns=line.now - 200 * MS), line.now)
    line.core.on_scene(look(line.rng, 2, stamp_ns=line.now, status=3), line.now)
    assert line.core.watch.workpieces == 0


def test_a_broken_assumption_closes_says_why_and_asks_once(broken):
    assert broken.core.state.phase is Phase.INTERVENTION
    assert ("drift", "background_saliency") in [(r.code, r.subject) for r in broken.core.state.details]
    broken.answer(SceneAnswer.RESCAN)
    broken.see(5)
    assert broken.core.state.phase is Phase.BLOCKED
    assert broken.broken
    told = [r for r in broken.sent(ev.OpenIntervention) if r.reasons[0].code == "assumption"]
    assert len(told) == 1


def test_a_question_that_left_with_its_workpiece_is_asked_again(broken):
    broken.workpiece()
    broken.see()
    told = [r for r in broken.sent(ev.OpenIntervention) if r.reasons[0].code == "assumption"]
    assert len(told) == 2


def test_it_latches_until_reset_and_then_begins_anew(broken):
    broken.laptops(3)
    assert broken.broken
    reply = next(effect for effect in broken.send(ev.Reset()) if isinstance(effect, ev.Reply))
    assert reply.accepted
    assert codes(reply.reasons) == ["assumption_reset"]
    assert isinstance(broken.sent(ev.CloseIntervention)[-1], ev.CloseIntervention)
    assert not broken.broken
    assert broken.core.watch.workpieces == 0
    broken.workpiece()
    broken.see(2)
    assert broken.core.state.phase is Phase.PERMITTED


def test_another_policy_ends_it_and_the_same_does_not(broken):
    broken.core.configure(POLICY, SETTINGS)
    broken.see()
    assert broken.broken
    broken.core.configure(POLICY.model_copy(update={"min_probability": 0.9}), SETTINGS)
    broken.see()
    assert not broken.broken


@pytest.mark.parametrize(
    "line", [Line(watch_assumption=False), Line(Policy(max_dil=1.0))], ids=["switched off", "no reference"]
)
def test_nothing_is_watched_without_a_reference_or_when_switched_off(line):
    assert line.laptops(30, dil=0.5) == 30
    assert not line.core.watch.active
    assert np.isnan(line.core.watch.evidence)


def test_a_clock_that_jumps_brings_no_other_workpiece():
    line = Line()
    line.workpiece()
    line.see(2)
    steady = 10**9
    for leap in (0, 3600 * 10**9, -1800 * 10**9):
        line.now += leap
        line.send(ev.Tick(steady))
        steady += 1
        line.see(2)
    assert line.core.watch.workpieces == 1


def test_without_names_a_workpiece_begins_where_the_last_one_was_done():
    line = Line()
    for _ in range(3):
        line.see(2)  # the arm gets its permit
        assert line.core.state.permit is not None
        # as after the last removal
        line.core.state = line.core.state.__class__(active=True, arm_ready=True, done=True, now_ns=line.now)
        line.see(2)
    assert line.core.watch.workpieces == 4


def promise(level: float) -> Proof:
    return Proof(
        level=level,
        confidence=0.9,
        method="test",
        images=300,
        events=0,
        bound=level,
        smallest_level=level,
        limit=0.1,
    )


PROMISED = Guarantee(match_iou=0.5, wrongful_removal=promise(0.02), sticker_left=promise(0.02))
PROMISING = Policy(max_dil=1.0, max_dil_clean=1.0, guarantee=PROMISED)


def checking(rate: float = 1.0) -> Line:
    """A line on which a person checks that share of the workpieces."""
    return Line(PROMISING, spot_check_rate=rate)


def test_a_spot_check_asks_before_anything_is_removed_and_then_lets_work_go_on():
    line = checking()
    line.workpiece()
    line.see(2)
    assert line.sent(ev.PublishDecision)[-1].decision.outcome is Outcome.ASK
    (asked,) = line.sent(ev.OpenIntervention)
    assert "spot_check" in codes(asked.reasons)
    assert [tuple(v.object.box) for v in asked.objects] == [HERE]
    assert line.answer(SceneAnswer.NONE, (Answer.REMOVE, HERE)).accepted
    line.see(2)
    assert line.core.state.phase is Phase.PERMITTED
    assert line.core.watch.spot_checks == 1


def test_without_a_promise_spot_checks_still_ask_and_nothing_is_tested():
    line = Line(POLICY.model_copy(update={"guarantee": None, "reference": None}), spot_check_rate=1.0)
    line.workpiece()
    line.see(2)
    assert "spot_check" in codes(line.sent(ev.OpenIntervention)[-1].reasons)
    line.answer(SceneAnswer.NONE, (Answer.KEEP, HERE))
    assert (line.core.watch.spot_checks, line.core.watch.active) == (1, False)


def test_more_is_checked_after_a_start_and_under_drift():
    line = Line(
        PROMISING, spot_check_rate=0.2, spot_check_factor=4.0, spot_check_start=3, watch_assumption=False
    )
    rates = []
    for _ in range(5):
        line.workpiece()
        line.see()
        rates.append(line.core.watch.spot_check_rate)
    assert rates == pytest.approx([0.8, 0.8, 0.8, 0.2, 0.2])
    line = Line(POLICY, spot_check_rate=0.01, spot_check_start=0)
    while not 0.5 <= line.core.watch.evidence < 1.0:
        assert line.core.watch.spot_check_rate == pytest.approx(0.01)
        line.workpiece()
        line.see(dil=0.5)
    assert line.core.watch.spot_check_rate == pytest.approx(0.03)


def test_removals_that_people_would_not_make_close_the_gate():
    line = checking()
    for number in range(1, 30):
        line.workpiece()
        line.see(2)
        line.answer(SceneAnswer.NONE, (Answer.KEEP if number % 2 else Answer.REMOVE, HERE))
        line.see()
        if line.broken:
            break
    assert 2 < number < 15
    assert "wrong_removal" in codes(line.core.state.details)


def test_answers_that_agree_with_the_policy_are_no_evidence():
    line = checking()
    for _ in range(40):
        line.workpiece()
        line.see(2)
        line.answer(SceneAnswer.NONE, (Answer.REMOVE, HERE), (Answer.MISSED, ELSEWHERE))
    assert not line.broken
    assert line.core.watch.evidence == 0.0


def test_stickers_drawn_on_laptops_called_clean_close_the_gate():
    line = checking()
    for _ in range(30):
        line.workpiece()
        for _ in range(2):
            line.now += 100 * MS
            empty = assessment(stamp_ns=line.now, image_digest=f"{line.now:032x}")
            line.effects += line.core.on_scene(empty, line.now)
        line.answer(SceneAnswer.NONE, (Answer.MISSED, THERE))
        line.see()
        if line.broken:
            break
    assert "missed_sticker" in codes(line.core.state.details)


@pytest.mark.parametrize(("promised", "counted"), [("sticker_left", False), ("missed_sticker", True)])
def test_laptops_that_never_had_a_sticker_count_for_a_promise_about_first_sight_only(promised, counted):
    given = Guarantee(match_iou=0.5, wrongful_removal=None, **{promised: promise(0.02)})
    line = Line(PROMISING.model_copy(update={"guarantee": given}), spot_check_rate=1.0)

    def checked_clean():
        for _ in range(2):
            line.now += 100 * MS
            empty = assessment(stamp_ns=line.now, image_digest=f"{line.now:032x}")
            line.effects += line.core.on_scene(empty, line.now)
        line.answer(SceneAnswer.CLEAN)

    tested = line.core.watch._risks["missed_sticker"]
    line.workpiece()
    checked_clean()
    assert (line.core.watch.spot_checks, tested.observed) == (1, int(counted))
    line.workpiece()
    line.see(2)  # has a sticker, which is checked and peeled
    line.answer(SceneAnswer.NONE, (Answer.REMOVE, HERE))
    checked_clean()
    assert tested.observed == 1 + counted


def test_only_the_drawn_share_is_checked():
    line = checking(rate=0.2)
    for _ in range(200):
        line.workpiece()
        line.see(2)
    assert 20 <= len(line.sent(ev.OpenIntervention)) <= 60


def test_a_policy_of_before_says_of_itself_what_its_bundle_says():
    before = Guarantee(match_iou=0.3, wrongful_removal=promise(0.01), missed_sticker=promise(0.05))
    now = Guarantee(match_iou=0.3, wrongful_removal=promise(0.01), sticker_left=promise(0.05))
    same = "wrongful removal <= 0.01 at 0.9 (n = 300), {} <= 0.05 at 0.9 (n = 300)"
    assert (str(before), str(now)) == (same.format("missed sticker"), same.format("sticker left"))
    assert "parts" not in before.model_dump(mode="json", exclude_none=True)["missed_sticker"], (
        "its hash stays"
    )
