# SPDX-License-Identifier: Apache-2.0
"""A witness who checks at every step of the gate what must always hold.

The witness knows the rules of the gate in another form than the gate does: it looks at the whole history from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

from sticker_uq.gate import Answer, BlockReason, GateSettings, GateState, Phase, Policy, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import Box, as_box, iou
from sticker_uq.gate.state import Relief, SceneFacts
from sticker_uq.messages import LOG_LINES, MESSAGES, gate_text, placeholders
from sticker_uq.scene import ImageCheck, ObjectClass, ObjectVerdict, Outcome, Reason, Verdict
from sticker_uq.testing.scenes import EVERY_LIMIT, SECOND
from test.helpers.said import Said

K = 2
SETTINGS = GateSettings(
    consecutive_scenes=K,
    max_scene_age_s=1.0,
    max_clock_skew_s=0.05,
    max_clock_jump_s=0.2,
    lease_s=0.4,
    tick_period_s=0.1,
    accept_timeout_s=0.5,
    removal_timeout_s=5.0,
    cancel_timeout_s=0.6,
    verify_timeout_s=3.0,
    undecided_timeout_s=4.0,
    intervention_timeout_s=10.0,
    max_attempts=2,
)
POLICY = Policy(**EVERY_LIMIT)


class Witness:
    """Sees every step and fails the test as soon as a rule is broken."""

    def __init__(self) -> None:
        self.history: list[ev.SceneReceived] = []  # sound scenes in a row while nothing closed the gate
        self.owed: int | None = None  # goal whose end the arm has not reported
        self.lost = False
        self.last_goal = 0
        self.wire: ev.PublishGate | None = None
        self.request = ""
        self.asked: tuple[ObjectVerdict, ...] = ()
        self.done: set[str] = set()
        self.digest = ""
        self.late = False  # whether the newest scene came when the one before was too old
        self.refused_ns = (
            0  # when an image was last refused as it arrived: no scene of an earlier one is evidence
        )
        self.doubts = 0  # scenes in a row that showed the permitted object a little beyond a limit
        self.goal_box: Box | None = None  # of the goal owed, while its workpiece is in the cell
        self.peeled: list[
            Box
        ] = []  # where the arm said that it has peeled, until a person says that a sticker is there
        self.said = Said()
        self.relief: Relief | None = None
        self.moved_ns = 0  # when the laptop or what lies on it may have changed last

    def copy(self) -> Witness:
        twin = Witness()
        twin.__dict__.update(self.__dict__)
        twin.history = list(self.history)
        twin.done = set(self.done)
        twin.peeled = list(self.peeled)
        twin.said = replace(self.said)
        return twin

    def see(
        self,
        before: GateState,
        event: ev.Event,
        now: int,
        after: GateState,
        effects: Sequence[ev.Effect],
        settings: GateSettings = SETTINGS,
    ) -> None:
        if isinstance(event, ev.Restarted):
            self._restarts(before, after, effects)
        self.said.hear(before, event, after, effects)
        self.refused_ns = min(self.refused_ns, now)  # a clock that went back goes on from its new time
        if (
            isinstance(event, ev.RemovalFinished)
            and event.goal_id == self.owed
            and event.code is ev.RemovalCode.NOT_STOPPED
        ):
            assert after.fault, "the arm may still move, and the gate knows of no fault"
            assert any(isinstance(e, ev.Escalate) for e in effects), "nobody was told to stop the arm"
        if isinstance(event, ev.ReliefReceived):
            assert not after.open or before.open, "a relief opened the gate"
            self.relief = event.relief
        if after.workpieces > before.workpieces or isinstance(event, ev.RemovalFinished):
            self.moved_ns = now if isinstance(event, ev.RemovalFinished) else after.workpiece_ns
        self._ends(event, before)
        self._peels(before, event, after, effects)
        self._published(before, event, after, effects)
        self._latches(before, event, after, effects)
        sound = self._sound(event, before, now, settings)
        if isinstance(event, ev.SceneReceived):
            kept = before.scene if now >= before.now_ns else None
            shown_ns = min(kept.stamp_ns, before.received_ns) if kept is not None else now
            self.late = now - shown_ns >= round(settings.max_scene_age_s * SECOND)
            if not sound:
                self.history.clear()
            elif event.facts.image_digest != self.digest or not settings.frozen_images:
                self.history.append(event)
            self.digest = event.facts.image_digest or self.digest
        if isinstance(event, ev.ImageArrived):
            assert not after.open or before.open, "an image opened the gate"
            alone = _of_one_publisher(event.check)
            if event.check.problem or not _lit(event.check, settings) or not alone:
                self.refused_ns = now
                self.history.clear()
                assert not after.open, "open although the image that has just arrived shows nothing"
            assert alone or after.reasons & BlockReason.SECOND_IMAGE_PUBLISHER, (
                "two cameras, and no word of it"
            )
        if self._closed(after, now, settings):
            self.history.clear()
            assert not after.open, "open although something closes it"
        self._goals(before, event, now, after, effects)
        if after.open:
            self._open(event, after, now, settings)
        if not after.open and before.permit is not None and before.permit.open and after.permit is not None:
            goal = before.permit.goal_id
            told = {e.goal_id for e in effects if isinstance(e, ev.CancelGoal | ev.RecoverGoal)}
            assert goal in told, "the permit is gone and the arm was not told"
        assert (
            after.open
            == (after.phase in (Phase.PERMITTED, Phase.REMOVING))
            == (after.reasons == BlockReason.NONE)
        )
        why = _gate_text(after.reasons, after.details)
        assert bool(why) == (not after.open), "only a closed gate says why"
        _have_words(after, effects)

    def _restarts(self, before: GateState, after: GateState, effects: Sequence[ev.Effect]) -> None:
        """The process began anew: it knows no scene, and the arm may still be at work."""
        assert not after.open
        assert not any(isinstance(e, ev.SendGoal) for e in effects), "a restart sent the arm"
        assert after.fault or not (self.request or before.fault), "a question or a fault was forgotten"
        assert (after.permit is None) == (self.owed is None), "a goal was forgotten"
        assert self.owed is None or any(isinstance(e, ev.RecoverGoal) for e in effects)
        assert not any(given.removes for given in after.memory.answers), "an approval outlived the process"
        assert bool(before.assumption) == bool(after.assumption)
        for name in ("skipped", "done", "attempts", "workpiece_id", "announced_ns"):
            assert getattr(before, name) == getattr(after, name), name
        self.history.clear()
        self.wire, self.request, self.digest, self.late = None, "", "", False

    def _ends(self, event: ev.Event, before: GateState) -> None:
        if isinstance(event, ev.RemovalFinished | ev.GoalRejected) and event.goal_id == self.owed:
            if isinstance(event, ev.RemovalFinished) and event.code is ev.RemovalCode.NONE and self.goal_box:
                self.peeled.append(self.goal_box)
            self.owed = None
        if isinstance(event, ev.Reset) and before.fault and before.permit is not None and before.permit.lost:
            self.owed = None

    def _peels(
        self, before: GateState, event: ev.Event, after: GateState, effects: Sequence[ev.Effect]
    ) -> None:
        if after.workpieces > before.workpieces:
            self.peeled, self.goal_box = [], None
        if isinstance(event, ev.SceneReceived) and after.problem & BlockReason.SOURCE_CHANGED:
            self.peeled = []
        taken = any(isinstance(e, ev.Reply) and e.accepted for e in effects)
        if isinstance(event, ev.AnswerGiven) and taken:
            stickers = [a.box for a in event.answers if a.answer in (Answer.REMOVE, Answer.MISSED)]
            self.peeled = [
                place for place in self.peeled if not any(iou(place, box) >= 0.5 for box in stickers)
            ]

    def _published(
        self, before: GateState, event: ev.Event, after: GateState, effects: Sequence[ev.Effect]
    ) -> None:
        gates = [e for e in effects if isinstance(e, ev.PublishGate)]
        assert len(gates) <= 1
        if gates:
            assert effects[0] is gates[0], "the gate is said before anything else happens"
            self.wire = gates[0]
            assert self.wire.state.open == after.open
        assert self.wire is None or self.wire.state.open == after.open, (
            "what was said last is not how the gate stands"
        )
        restarted = isinstance(event, ev.Restarted)  # nobody heard the process before
        assert before.phase is after.phase or gates or restarted, "a change of phase was not said"

    def _latches(
        self, before: GateState, event: ev.Event, after: GateState, effects: Sequence[ev.Effect]
    ) -> None:
        if before.fault:
            assert after.fault or isinstance(event, ev.Reset), "a fault ended without a reset"
        if after.fault:
            assert after.phase is Phase.FAULT
        opened = [e for e in effects if isinstance(e, ev.OpenIntervention)]
        closed = [e for e in effects if isinstance(e, ev.CloseIntervention)]
        assert len(opened) <= 1
        if closed:
            answered = isinstance(event, ev.AnswerGiven) and any(
                isinstance(e, ev.Reply) and e.accepted for e in effects
            )
            reset = isinstance(event, ev.Reset) and self.request == before.assumption_request
            assert answered or reset or isinstance(event, ev.WorkpieceChanged | ev.Release), (
                "a request was closed by itself"
            )
            assert [e.request_id for e in closed] == [self.request]
            self.request = ""
            if isinstance(event, ev.AnswerGiven) and event.scene_answer is SceneAnswer.CLEAN:
                said = [*(given.box for given in event.answers), *event.not_stickers]
                for seen in (*self.asked, *(before.decision.verdicts if before.decision else ())):
                    sticker = seen.object.label is ObjectClass.STICKER and seen.verdict is not Verdict.KEEP
                    box = as_box(seen.object.box)
                    assert not sticker or any(iou(box, other) >= 0.5 for other in said), (
                        "called clean without a word about what looks like a sticker"
                    )
        if opened:
            assert self.request == "", "a second request was opened"
            self.request, self.asked = opened[0].request_id, opened[0].objects
        assert (after.request.request_id if after.request else "") == self.request
        if isinstance(event, ev.WorkpieceChanged) and after.workpieces > before.workpieces:
            self.done.discard(event.workpiece_id)
        for effect in effects:
            if isinstance(effect, ev.DeclareDone) and effect.workpiece_id:
                assert effect.workpiece_id not in self.done, "a workpiece was declared done twice"
                self.done.add(effect.workpiece_id)
                if effect.clean:
                    assert len(self.history) >= 1
                    assert isinstance(event, ev.SceneReceived)
                    assert event.decision.outcome is Outcome.CLEAN

    def _sound(self, event: ev.Event, before: GateState, now: int, settings: GateSettings) -> bool:
        if not isinstance(event, ev.SceneReceived):
            return False
        facts = event.facts
        previous = self.history[-1].facts if self.history else None
        return (
            facts.usable
            and facts.finite
            and _lit(facts, settings)
            and _of_one_publisher(facts)
            and min(facts.image_size) > 0
            and max(0, self.refused_ns) < facts.stamp_ns <= now + round(settings.max_clock_skew_s * SECOND)
            and event.decision.outcome in (Outcome.WORK, Outcome.ASK, Outcome.CLEAN)
            and (
                previous is None
                or (
                    (facts.frame_id, facts.image_size) == (previous.frame_id, previous.image_size)
                    and facts.judges == previous.judges
                    and facts.stamp_ns > previous.stamp_ns
                )
            )
        )

    def _closed(self, after: GateState, now: int, settings: GateSettings) -> bool:
        """Whether anything at all forbids a permit, told from the outside of the state."""
        limit = round(settings.max_scene_age_s * SECOND)
        scene = after.scene
        return (
            not after.active
            or bool(after.fault)
            or after.held
            or after.request is not None
            or after.skipped
            or now <= 0
            or scene is None
            or not scene.usable
            or not scene.finite
            or not _lit(scene, settings)
            or not _of_one_publisher(scene)
            or bool(after.impediments)
            or now - scene.stamp_ns >= limit
            or now - after.received_ns >= limit
            or self.late
        )

    def _open(self, event: ev.Event, after: GateState, now: int, settings: GateSettings) -> None:
        permit = after.permit
        assert permit.revoked_ns is None
        assert permit.goal_id == self.owed
        assert after.arm_ready
        assert not permit.lost
        target, scene, decision = permit.target, after.scene, after.decision
        assert decision is not None
        assert now < permit.valid_until_ns <= now + round(settings.lease_s * SECOND)
        assert permit.valid_until_ns <= scene.stamp_ns + round(settings.max_scene_age_s * SECOND)
        assert permit.settings == settings
        assert (scene.model_hash, scene.policy_hash) == (target.model_hash, target.policy_hash)
        thing = target.verdict.object
        assert target.by_operator or (thing.label is ObjectClass.STICKER and not thing.unstable), (
            "no stable sticker"
        )
        here = [v for v in decision.verdicts if iou(as_box(v.object.box), target.box) >= settings.match_iou]
        removable = [v for v in here if v.verdict is Verdict.REMOVE]
        doubtful = [v for v in here if v.verdict is Verdict.ASK]
        # an image without its turn of distinctive localization doubts nothing: the object must be there all the same
        silent = bool(decision.reasons) and all(r.value != r.value for r in decision.reasons)
        if not permit.accepted:
            assert silent or not any(map(_beyond_doubt, decision.reasons)), (
                "open before the arm started, against the scene"
            )
            assert removable or doubtful, "open for something that the newest scene does not show"
        if not removable:
            assert not any(v.object.label is ObjectClass.LOGO for v in here), "open over a logo"
            assert all(_slightly_unsure(v, target.box) for v in doubtful), "open for something in question"
        if isinstance(event, ev.SceneReceived):
            unsure = (not removable and doubtful) or (
                not permit.accepted and decision.outcome is Outcome.ASK and not silent
            )
            self.doubts = self.doubts + 1 if unsure else 0 if removable else self.doubts
        assert self.doubts < settings.consecutive_scenes, "open although the scenes keep doubting it"

    def _goals(
        self, before: GateState, event: ev.Event, now: int, after: GateState, effects: Sequence[ev.Effect]
    ) -> None:
        sent = [e for e in effects if isinstance(e, ev.SendGoal)]
        assert len(sent) <= 1
        assert not after.open or before.open or sent, "opened without a goal"
        if not sent:
            return
        goal = sent[0]
        assert not before.open
        assert self.owed is None, "a second goal while the arm owes the end of the first"
        assert goal.goal_id > self.last_goal
        assert isinstance(event, ev.SceneReceived), "only a scene opens"
        assert after.open
        assert after.permit.goal_id == goal.goal_id
        self.owed = self.last_goal = goal.goal_id
        self.doubts = 0
        agreed = self.history[-after.permit.settings.consecutive_scenes :]
        assert len(agreed) == after.permit.settings.consecutive_scenes, "opened after too few scenes in a row"
        place = self.goal_box = goal.target.box
        self.said.allow(place)
        assert not any(iou(place, other) >= 0.5 for other in self.peeled), (
            "the arm goes again to where it said that it has peeled, and nobody was asked"
        )
        settings = after.permit.settings
        if settings.min_relief_mm and not goal.target.by_operator:
            self._raised(place, now, event.facts, settings)
        for older in reversed(agreed):
            assert older.decision.outcome is Outcome.WORK
            near = [as_box(v.object.box) for v in older.decision.removable()]
            best = max(near, key=lambda box: iou(box, place))
            assert iou(best, place) >= after.permit.settings.match_iou, (
                "the scenes did not agree about the object"
            )
            place = best

    def _raised(self, place: Box, now: int, facts: SceneFacts, settings: GateSettings) -> None:
        """A relief of this scene, in which the middle of ``place`` stands out as a sticker does."""
        relief = self.relief
        assert relief is not None, "opened without a relief"
        assert max(self.moved_ns, now - round(settings.max_relief_age_s * SECOND)) < relief.stamp_ns, (
            "of another scene"
        )
        assert relief.stamp_ns <= now + round(settings.max_clock_skew_s * SECOND), "measured in the future"
        assert (relief.frame_id, *reversed(relief.height.shape)) == (facts.frame_id, *facts.image_size)
        middle = relief.height[round((place[1] + place[3]) / 2), round((place[0] + place[2]) / 2)]
        assert 0.001 * settings.min_relief_mm <= middle <= 0.003, "no sticker is as flat or high"


def _have_words(after: GateState, effects: Sequence[ev.Effect]) -> None:
    """Every reason that leaves the gate is in the catalogue and has the values that its message names."""
    found = list(after.details)
    for effect in effects:
        found += (
            effect.state.details if isinstance(effect, ev.PublishGate) else getattr(effect, "reasons", ())
        )
        found += [effect.reason] if isinstance(effect, ev.DeclareDone | ev.Escalate) else []
    for reason in found:
        if wanted := _placeholders(reason.code):
            known = {*dict(reason.values), *((reason.box and ("x1", "y1", "x2", "y2")) or ())}
            assert wanted <= known, reason


@cache
def _placeholders(code: str) -> frozenset[str]:
    return placeholders((MESSAGES | LOG_LINES)[code]) - {"value", "limit", "subject"}


_gate_text = lru_cache(10_000)(lambda reasons, details: gate_text(reasons.codes, details))


def _lit(facts: SceneFacts | ImageCheck, settings: GateSettings) -> bool:
    """Whether something can be told from the image; of its brightness only the mean is looked at here."""
    if facts.exposure is None:
        return settings.max_saturated_share == 1.0
    return settings.min_image_level <= facts.exposure.mean_level <= settings.max_image_level


def _of_one_publisher(facts: SceneFacts | ImageCheck) -> bool:
    """Whether the image can only come from one place: exactly one node publishes them, or no node at all."""
    return facts.image_publishers is None or len(facts.image_publishers) == 1


def _slightly_unsure(verdict: ObjectVerdict, place: Box) -> bool:
    """A stable sticker that nothing but its own numbers speaks against, none of them far from its limit."""
    thing = verdict.object
    limits = POLICY
    reasons = {name for reason in verdict.reasons for name in (reason.code, reason.subject)}
    return (
        thing.label is ObjectClass.STICKER
        and not thing.unstable
        and (not thing.duplicated or iou(as_box(thing.box), place) >= 0.7)
        and not reasons & {"logo_overlap", "operator_answers_conflict", "operator_drew_on_logo", "few_passes"}
        and float(thing.over_all_passes[ObjectClass.STICKER]) >= limits.min_probability - 0.1 - 1e-6
        and thing.detection_rate >= limits.min_detection_rate - 0.15 - 1e-6
        and thing.shannon_entropy <= 1.5 * limits.max_shannon_entropy
        and thing.mutual_information <= 1.5 * limits.max_mutual_information
    )


def _beyond_doubt(reason: Reason) -> bool:
    return reason.code != "perception_restricted" and not reason.value <= 1.5 * reason.limit
