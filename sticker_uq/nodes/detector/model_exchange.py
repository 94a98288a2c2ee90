# SPDX-License-Identifier: Apache-2.0
"""Replaces the detector node's model at run time without interrupting the assessment of images."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.exceptions import InvalidHandle
from rclpy.node import Node
from rclpy.task import Future

from sticker_uq.io.setting_fields import validated
from sticker_uq.messages import text_of
from sticker_uq.nodes.common.conversions import reason_to_msg
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import settings_of_file
from sticker_uq.scene import InvalidInput, Reason
from sticker_uq_msgs.srv import SelectModel

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception

R = TypeVar("R")


class BackgroundTask(Generic[R]):
    """Runs one task of a node at a time in a thread. Call all methods from the executor's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._guard = node.create_guard_condition(self._finish)
        self._thread: threading.Thread | None = None
        self._result: R | None = None
        self._error = ""
        self._done: Callable[[R | None, str], None] = lambda result, error: None

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def start(self, work: Callable[[], R], done: Callable[[R | None, str], None]) -> None:
        """Run ``work`` in the background of any node; its executor calls ``done`` with the result and "", or with None and the
        error.
        """
        if self.busy:
            raise RuntimeError("the task is busy")
        self._done = done
        self._thread = threading.Thread(target=self._run, args=(work,), name="background", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], R]) -> None:
        self._result, self._error = None, ""
        try:
            self._result = work()
        except InvalidInput as error:
            self._error = str(error)
        except Exception as error:  # noqa: BLE001 - it is told to whoever waits
            self._error = f"{type(error).__name__}: {error}"
            self._node.get_logger().debug(traceback.format_exc())
        with contextlib.suppress(InvalidHandle):  # the node was destroyed meanwhile
            self._guard.trigger()

    def _finish(self) -> None:
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        result, self._result = self._result, None
        self._done(result, self._error)


Factory = Callable[[PerceptionSettings], "Perception"]


class ModelExchange:
    """Holds the detector node's current perception and answers the service ``select_model``.

    ``factory`` makes perception from its settings; ``served`` is called with the current settings after every exchange,
    successful or not. Call all methods but :meth:`current` from the executor's thread.
    """

    def __init__(self, node: Node, factory: Factory, served: Callable[[PerceptionSettings], None]) -> None:
        self._node = node
        self._factory = factory
        self._served = served
        self.serving: Perception | None = None
        self._loading: BackgroundTask[Perception] = BackgroundTask(node)
        # a pending answer must not block the other services
        node.create_service(
            SelectModel,
            "select_model",
            self._on_select_model,
            callback_group=MutuallyExclusiveCallbackGroup(),
        )

    @property
    def busy(self) -> bool:
        return self._loading.busy

    def current(self) -> Perception:
        serving = self.serving
        if serving is None:
            raise RuntimeError("no model is loaded")
        return serving

    def fallback(self) -> str:
        """That device "auto" found no GPU, in words; "" if it did, or a device was named."""
        serving = self.serving
        if serving is None or serving.settings.device != "auto" or serving.device != "cpu":
            return ""
        return "device is auto and no usable GPU was found: computing on the processor (sticker-uq doctor says why)"

    def load(self, settings: PerceptionSettings) -> None:
        self.serving = self._loaded(settings)
        if fallback := self.fallback():
            self._node.get_logger().warning(f"{fallback}; set device to cpu if that is meant")

    def clear(self) -> None:
        self.serving = None

    def exchange(
        self, wanted: PerceptionSettings, told: Callable[[bool, Reason], None] = lambda success, reason: None
    ) -> None:
        """Load the model ``wanted`` in the background; ``told`` gets success and what happened once it serves or was given up."""

        def done(perception: Perception | None, error: str) -> None:
            old = self.serving
            if old is None:
                told(False, Reason.of("model_unloaded", node=self._node.get_name()))
                return
            if perception is not None:
                self.serving = perception
                before = {f"old_{name}": value for name, value in _named(old).items()}
                reason = Reason.of("model_serves", **_named(perception), **before)
            else:
                reason = Reason.of("model_kept", **_named(old), detail=error)
                self._node.get_logger().error(f"{wanted.model} could not be loaded, {text_of(reason)}")
            self._served(self.current().settings)
            told(perception is not None, reason)

        self._loading.start(lambda: self._loaded(wanted), done)

    def _loaded(self, settings: PerceptionSettings) -> Perception:
        logger = self._node.get_logger()
        logger.info(f"loading {settings.model} ({settings.weights or 'packaged weights'})")
        start = time.perf_counter()
        perception = self._factory(settings)
        perception.warm_up()
        elapsed_ms = (time.perf_counter() - start) * 1e3
        logger.info(
            f"{settings.model} (weights {perception.model_hash[:12]}) ready on {perception.device} in {settings.precision} after "
            f"{elapsed_ms:.0f} ms, T={settings.passes}, dropout rate {settings.dropout_rate:g}"
        )
        return perception

    async def _on_select_model(
        self, request: SelectModel.Request, response: SelectModel.Response
    ) -> SelectModel.Response:
        response.success, reason = await self._select(request)
        response.reasons, response.message = [reason_to_msg(reason)], text_of(reason)
        response.model_hash = self.serving.model_hash if self.serving else ""
        return response

    async def _select(self, request: SelectModel.Request) -> tuple[bool, Reason]:
        if self.serving is None:
            return False, Reason.of("not_configured", node=self._node.get_name())
        if self.busy:
            return False, Reason("model_loading")
        try:
            wanted = self._requested(request, self.serving.settings)
        except InvalidInput as error:
            return False, Reason.of("model_request_invalid", detail=str(error))
        answer: Future = Future()
        self.exchange(wanted, lambda success, reason: answer.set_result((success, reason)))
        await answer
        return answer.result()

    def _requested(self, request: SelectModel.Request, present: PerceptionSettings) -> PerceptionSettings:
        """The settings in ``request``; raises InvalidInput for invalid ones."""
        if not request.file:
            changes = {"model": request.model, "weights": request.weights}
            return validated(PerceptionSettings, present.model_dump() | changes)
        if request.model or request.weights:
            raise InvalidInput(
                f"both model or weights and file {request.file} are set: expected one of the two"
            )
        return settings_of_file(Path(request.file), self._node.get_name(), present)


def _named(perception: Perception) -> dict[str, str]:
    return {"model": perception.settings.model, "hash": perception.model_hash[:12]}
