# SPDX-License-Identifier: Apache-2.0
"""The supervisor node's services for the operator: answers, hold and release, reset."""

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from std_srvs.srv import SetBool, Trigger

from sticker_uq.gate import Answer, OperatorAnswer, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.state import GateState as State
from sticker_uq.io.messages import box_from_msg, stamp_to_ns
from sticker_uq.messages import log_line, texts_of
from sticker_uq.nodes.common.conversions import reason_to_msg
from sticker_uq.scene import Reason
from sticker_uq_msgs.srv import OperateGate, ResolveIntervention

MOST_ANSWERS = 1000
"""Answers in one request: comparing all of them with each other takes 0.1 s, in which the gate does nothing else."""
LONGEST_NAME = 200
"""Characters of a person's name and of a request_id, which stand in the audit log."""


class OperatorServices:
    """The services ``intervention/resolve``, ``hold``, ``reset`` and ``operate``.

    Each request becomes an event for ``happen``, whose reply is the response; ``state`` gives the state of the gate.
    ``answered`` gets an answer that was accepted, with the workpiece and the frame that it is about.
    """

    def __init__(
        self,
        node: Node,
        happen: Callable[[ev.Event], ev.Reply],
        state: Callable[[], State],
        answered: Callable[[ResolveIntervention.Request, str, str], None],
    ) -> None:
        self._node = node
        self._happen = happen
        self._state = state
        self._answered = answered
        self._services = (
            node.create_service(ResolveIntervention, "intervention/resolve", self._on_answer),
            node.create_service(SetBool, "hold", self._on_hold),
            node.create_service(Trigger, "reset", self._on_reset),
            node.create_service(OperateGate, "operate", self._on_operate),
        )

    def destroy(self) -> None:
        for service in self._services:
            self._node.destroy_service(service)

    def _on_answer(
        self, request: ResolveIntervention.Request, response: ResolveIntervention.Response
    ) -> ResolveIntervention.Response:
        longest = max(len(request.person), len(request.request_id))
        if max(len(request.answers), len(request.not_stickers)) > MOST_ANSWERS or longest > LONGEST_NAME:
            return _fill_response(response, ev.Reply(False, (_TOO_LONG,)))
        if request.scene_answer not in set(SceneAnswer):
            unknown = Reason.of("scene_answer_unknown", number=request.scene_answer)
            return _fill_response(response, ev.Reply(False, (unknown,)))
        answers = tuple(
            OperatorAnswer(
                Answer(a.answer) if a.answer in set(Answer) else Answer.UNKNOWN, as_box(box_from_msg(a.box))
            )
            for a in request.answers
        )
        workpiece_id = self._state().workpiece_id
        event = ev.AnswerGiven(
            request.request_id,
            request.person,
            SceneAnswer(request.scene_answer),
            answers,
            request.person_checked,
            tuple(as_box(box_from_msg(box)) for box in request.not_stickers),
            stamp_to_ns(request.image_stamp),
        )
        reply = self._happen(event)
        if reply.accepted:
            reference = self._state().reference
            self._answered(request, workpiece_id, reference.frame_id if reference else "")
        return _fill_response(response, reply)

    def _on_hold(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        reply = self._hold(ev.Hold() if request.data else ev.Release())
        response.success, response.message = reply.accepted, log_line(reply.reasons)
        return response

    def _hold(self, event: ev.Hold | ev.Release) -> ev.Reply:
        reply = self._happen(event)
        if reply.reasons:  # it could not be written down
            return reply
        state = self._state()
        stands = Reason("gate_stands", state.phase.name.lower())
        why = (stands, *map(Reason, state.reasons.codes), *state.details)
        return ev.Reply(state.held == isinstance(event, ev.Hold), why)

    def _on_reset(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        reply = self._happen(ev.Reset())
        response.success, response.message = reply.accepted, texts_of(reply.reasons)
        return response

    def _on_operate(
        self, request: OperateGate.Request, response: OperateGate.Response
    ) -> OperateGate.Response:
        person = request.person.strip()
        checked = bool(person and request.person_checked)
        return _fill_response(response, self._operate(request.command, person, checked))

    def _operate(self, command: int, person: str, checked: bool) -> ev.Reply:
        if command == OperateGate.Request.COMMAND_HOLD:  # by anybody: nothing may delay it
            return self._hold(ev.Hold(person[:LONGEST_NAME], checked and len(person) <= LONGEST_NAME))
        if not person:
            return ev.Reply(False, (Reason("person_missing"),))
        if len(person) > LONGEST_NAME:
            return ev.Reply(False, (_TOO_LONG,))
        match command:
            case OperateGate.Request.COMMAND_RELEASE:
                return self._hold(ev.Release(person, checked))
            case OperateGate.Request.COMMAND_RESET:
                return self._happen(ev.Reset(person, checked))
        return ev.Reply(False, (Reason.of("command_unknown", number=command),))


_TOO_LONG = Reason.of("request_too_long", answers=MOST_ANSWERS, characters=LONGEST_NAME)


def _fill_response(response: Any, reply: ev.Reply) -> Any:
    """``response`` with what ``reply`` says, in codes and in words."""
    response.accepted = reply.accepted
    response.reasons = [reason_to_msg(reason) for reason in reply.reasons]
    response.message = texts_of(reply.reasons)
    return response
