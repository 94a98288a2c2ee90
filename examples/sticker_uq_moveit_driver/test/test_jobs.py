# SPDX-License-Identifier: Apache-2.0
"""Goals and calls as the motion polls them, with futures that the test completes."""

from typing import Any

import pytest
from rclpy.task import Future

from sticker_uq.nodes.arm.client import MotionFailed
from sticker_uq_moveit_driver.jobs import CallJob, GoalJob, Sequence


class FakeHandle:
    """Handle of a goal whose end the test decides."""

    def __init__(self, accepted: bool = True) -> None:
        self.accepted = accepted
        self.result = Future()
        self.cancelled = 0

    def get_result_async(self) -> Future:
        return self.result

    def cancel_goal_async(self) -> None:
        self.cancelled += 1


class FakeClient:
    """Action and service client in one: keeps requests and answers when the test says so."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: list[Future] = []

    def send_goal_async(self, request: Any) -> Future:
        self.requests.append(request)
        self.answers.append(Future())
        return self.answers[-1]

    call_async = send_goal_async

    def remove_pending_request(self, answer: Future) -> None:
        assert answer in self.answers


class Response:
    def __init__(self, status: int, result: str) -> None:
        self.status = status
        self.result = result


def ok(*_: Any) -> None:
    """Reads every result as a success."""


def test_a_goal_is_done_when_its_result_is_there() -> None:
    client, handle, seen = FakeClient(), FakeHandle(), []
    job = GoalJob(client, "goal", "move", lambda status, result: seen.append((status, result)))
    assert client.requests == ["goal"]
    assert (job.finished(), job.ended()) == (False, False)
    client.answers[0].set_result(handle)
    assert (job.finished(), job.ended()) == (False, False)
    handle.result.set_result(Response(4, "there"))
    assert (job.finished(), job.ended()) == (True, True)
    assert seen == [(4, "there")]


def test_a_refused_goal_fails_and_moves_nothing() -> None:
    client = FakeClient()
    job = GoalJob(client, "goal", "move_action", ok)
    client.answers[0].set_result(FakeHandle(accepted=False))
    with pytest.raises(MotionFailed, match="move_action: the goal was refused"):
        job.finished()
    assert job.ended()
    job.cancel()  # nothing is there to cancel, and nothing is raised


@pytest.mark.parametrize("accepted_before", [True, False])
def test_a_goal_is_cancelled_even_when_it_is_accepted_only_afterwards(accepted_before: bool) -> None:
    client, handle = FakeClient(), FakeHandle()
    job = GoalJob(client, "goal", "move", ok)
    if accepted_before:
        client.answers[0].set_result(handle)
    job.cancel()
    if not accepted_before:
        assert not job.ended()
        client.answers[0].set_result(handle)
    assert handle.cancelled == 1
    assert not job.ended()
    handle.result.set_result(Response(5, "cancelled"))
    assert job.ended()


def test_what_read_finds_wrong_is_raised() -> None:
    def read(response: str) -> None:
        raise MotionFailed(response)

    client = FakeClient()
    job = CallJob(client, "request", read)
    assert not job.finished()
    client.answers[0].set_result("no")
    with pytest.raises(MotionFailed, match="no"):
        job.finished()
    assert job.ended()


def test_a_sequence_starts_the_second_job_when_the_first_is_done() -> None:
    path, motion, handle = FakeClient(), FakeClient(), FakeHandle()
    job = Sequence(CallJob(path, "path", ok), lambda: GoalJob(motion, "trajectory", "execute", ok))
    assert not job.finished()
    assert motion.requests == []
    path.answers[0].set_result("planned")
    assert not job.finished()
    assert motion.requests == ["trajectory"]
    motion.answers[0].set_result(handle)
    assert (job.finished(), job.ended()) == (False, False)
    handle.result.set_result(Response(4, ""))
    assert (job.finished(), job.ended()) == (True, True)


def test_a_sequence_that_is_cancelled_while_it_plans_never_moves() -> None:
    path, motion = FakeClient(), FakeClient()
    job = Sequence(CallJob(path, "path", ok), lambda: GoalJob(motion, "trajectory", "execute", ok))
    job.cancel()
    path.answers[0].set_result("planned")
    assert job.finished()
    assert job.ended()
    assert motion.requests == []
