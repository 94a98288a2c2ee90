"""The services through which people speak to the supervisor: answers, hold and release, reset."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.node import Node
from std_srvs.srv import SetBool, Trigger

from sticker_uq.gate import Answer, OperatorAnswer, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.state import GateState as State
from sticker_uq.nodes.common.conversions import box_from_msg
from sticker_uq_msgs.srv import OperateGate, ResolveIntervention


class PeopleServices:
    """Serves ``intervention/resolve``, ``hold``, ``reset`` and ``operate`` on ``node``.

    What a person says becomes an event for ``happen``, whose reply is the answer; ``state`` tells how the gate stands.
    ``answered`` is told an answer that was accepted, with the workpiece and the frame that it is about.
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
        """Withdraw the services."""
        for service in self._services:
            self._node.destroy_service(service)

    def _on_answer(
        self, request: ResolveIntervention.Request, response: ResolveIntervention.Response
    ) -> ResolveIntervention.Response:
        if request.scene_answer not in set(SceneAnswer):
            response.message = f"scene_answer {request.scene_answer} is unknown"
            return response
        answers = tuple(
            OperatorAnswer(
                Answer(a.answer) if a.answer in set(Answer) else Answer.UNKNOWN, as_box(box_from_msg(a.box))
            )
            for a in request.answers
        )
        workpiece_id = self._state().workpiece_id
        event = ev.AnswerGiven(request.request_id, request.person, SceneAnswer(request.scene_answer), answers)
        reply = self._happen(event)
        response.accepted, response.message = reply.accepted, reply.message
        if reply.accepted:
            reference = self._state().reference
            self._answered(request, workpiece_id, reference.frame_id if reference else "")
        return response

    def _on_hold(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        reply = self._hold(request.data, "")
        response.success, response.message = reply.accepted, reply.message
        return response

    def _hold(self, held: bool, person: str) -> ev.Reply:
        self._happen(ev.Hold(person) if held else ev.Release(person))
        state = self._state()
        return ev.Reply(state.held == held, f"{state.phase.name}: {state.text or 'open'}")

    def _on_reset(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        reply = self._happen(ev.Reset())
        response.success, response.message = reply.accepted, reply.message
        return response

    def _on_operate(
        self, request: OperateGate.Request, response: OperateGate.Response
    ) -> OperateGate.Response:
        reply = self._operate(request.command, request.person.strip())
        response.accepted, response.message = reply.accepted, reply.message
        return response

    def _operate(self, command: int, person: str) -> ev.Reply:
        if not person:
            return ev.Reply(False, "person is empty: say who it is")
        match command:
            case OperateGate.Request.COMMAND_HOLD | OperateGate.Request.COMMAND_RELEASE:
                return self._hold(command == OperateGate.Request.COMMAND_HOLD, person)
            case OperateGate.Request.COMMAND_RESET:
                return self._happen(ev.Reset(person))
        return ev.Reply(False, f"command {command} is unknown: expected hold (1), release (2) or reset (3)")
