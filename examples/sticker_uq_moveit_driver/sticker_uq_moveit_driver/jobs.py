# SPDX-License-Identifier: Apache-2.0
"""Actions and services that a step of the motion waits for, polled by the thread that checks the permit.

Nothing here blocks and, but for a goal that is accepted too late, nothing runs in another thread: a step ends, fails or is
cancelled at a known place. Without messages: whoever starts a job makes the request and reads the result.
"""

from collections.abc import Callable
from typing import Any, Protocol

from sticker_uq.nodes.arm.client import MotionFailed


class Job(Protocol):
    """What one step does."""

    def finished(self) -> bool:
        """Whether it is done; raises :class:`MotionFailed` if it failed."""

    def cancel(self) -> None:
        """Ask for its end; may be called again."""

    def ended(self) -> bool:
        """Whether it cannot move the arm any more, however it ended. Raises nothing."""


class GoalJob:
    """A goal of an action; ``read`` takes status and result of its end and raises :class:`MotionFailed` if they are an error."""

    def __init__(self, client: Any, goal: Any, what: str, read: Callable[[int, Any], None]) -> None:
        self._what = what
        self._read = read
        self._sent = client.send_goal_async(goal)
        self._result: Any = None

    def finished(self) -> bool:
        """Whether the goal succeeded; raises :class:`MotionFailed` when it was refused or ``read`` says so."""
        if not self._sent.done():
            return False
        if not self._sent.result().accepted:
            raise MotionFailed(f"{self._what}: the goal was refused")
        if not self._result_is_there():
            return False
        response = self._result.result()
        self._read(response.status, response.result)
        return True

    def cancel(self) -> None:
        """Cancel the goal; one that is not accepted yet is cancelled when it is."""
        self._sent.add_done_callback(_cancel_accepted)

    def ended(self) -> bool:
        """Whether the goal was refused or has its result."""
        return self._sent.done() and (not self._sent.result().accepted or self._result_is_there())

    def _result_is_there(self) -> bool:
        if self._result is None:
            self._result = self._sent.result().get_result_async()
        return bool(self._result.done())


class CallJob:
    """A call of a service that moves nothing; ``read`` takes the response and raises :class:`MotionFailed` if it is an error."""

    def __init__(self, client: Any, request: Any, read: Callable[[Any], None]) -> None:
        self._client = client
        self._read = read
        self._answer = client.call_async(request)

    def finished(self) -> bool:
        if not self._answer.done():
            return False
        self._read(self._answer.result())
        return True

    def cancel(self) -> None:
        self._client.remove_pending_request(self._answer)

    def ended(self) -> bool:
        return True  # a service call moves nothing


class Sequence:
    """A job that is followed by the one that ``then`` makes; a cancelled one is followed by none."""

    def __init__(self, first: Job, then: Callable[[], Job]) -> None:
        self._job = first
        self._then: Callable[[], Job] | None = then

    def finished(self) -> bool:
        """Whether the second job is done; starts it when the first one is."""
        if not self._job.finished():
            return False
        if self._then is None:
            return True
        then, self._then = self._then, None
        self._job = then()
        return False

    def cancel(self) -> None:
        self._then = None
        self._job.cancel()

    def ended(self) -> bool:
        return self._then is None and self._job.ended()


class Done:
    """A job that has nothing to do."""

    def finished(self) -> bool:
        return True

    def cancel(self) -> None:
        pass

    def ended(self) -> bool:
        return True


def _cancel_accepted(sent: Any) -> None:
    handle = sent.result()
    if handle.accepted:
        handle.cancel_goal_async()
