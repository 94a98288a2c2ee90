"""Replaces the model at run time without interrupting the assessment of images."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.task import Future

from sticker_uq.io.setting_fields import validated
from sticker_uq.nodes.common.background import BackgroundTask
from sticker_uq.nodes.detector.assessor import Assessor
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import settings_of_file
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs.srv import SelectModel

Factory = Callable[[PerceptionSettings], Assessor]


class ModelExchange:
    """Holds the current perception and answers the service ``select_model``.

    ``factory`` makes perception from its settings; ``served`` is called with the current settings after every exchange,
    successful or not. Call all methods but :meth:`current` from the executor's thread.
    """

    def __init__(self, node: Node, factory: Factory, served: Callable[[PerceptionSettings], None]) -> None:
        self._node = node
        self._factory = factory
        self._served = served
        self.serving: Assessor | None = None
        self._loading: BackgroundTask[Assessor] = BackgroundTask(node)
        # a pending answer must not block the other services
        node.create_service(
            SelectModel,
            "select_model",
            self._on_select_model,
            callback_group=MutuallyExclusiveCallbackGroup(),
        )

    @property
    def busy(self) -> bool:
        """Whether a model is being loaded."""
        return self._loading.busy

    def current(self) -> Assessor:
        """The current perception, from any thread; raises RuntimeError without one."""
        serving = self.serving
        if serving is None:
            raise RuntimeError("no model is loaded")
        return serving

    def load(self, settings: PerceptionSettings) -> None:
        """Load and warm up the first perception."""
        self.serving = self._loaded(settings)

    def clear(self) -> None:
        """Release the current perception."""
        self.serving = None

    def exchange(
        self,
        wanted: PerceptionSettings,
        on_result: Callable[[bool, str], None] = lambda success, message: None,
    ) -> None:
        """Load ``wanted`` in the background and call ``on_result`` with success and a message."""

        def done(perception: Assessor | None, error: str) -> None:
            old = self.serving
            if old is None:
                on_result(False, f"{self._node.get_name()} was cleaned up meanwhile")
                return
            if perception is not None:
                self.serving = perception
            message = (
                f"{_named(perception)} replaces {_named(old)}"
                if perception is not None
                else f"{_named(old)} stays in use: {error}"
            )
            if perception is None:
                self._node.get_logger().error(f"{wanted.model} could not be loaded, {message}")
            self._served(self.current().settings)
            on_result(perception is not None, message)

        self._loading.start(lambda: self._loaded(wanted), done)

    def _loaded(self, settings: PerceptionSettings) -> Assessor:
        logger = self._node.get_logger()
        logger.info(f"loading {settings.model} ({settings.weights or 'packaged weights'})")
        start = time.perf_counter()
        perception = self._factory(settings)
        perception.warm_up()
        elapsed_ms = (time.perf_counter() - start) * 1e3
        logger.info(
            f"{settings.model} (weights {perception.model_hash[:12]}) ready on {settings.device} in {elapsed_ms:.0f} ms, "
            f"T={settings.passes}, dropout rate {settings.dropout_rate:g}"
        )
        return perception

    async def _on_select_model(
        self, request: SelectModel.Request, response: SelectModel.Response
    ) -> SelectModel.Response:
        response.success, response.message = await self._select(request)
        response.model_hash = self.serving.model_hash if self.serving else ""
        return response

    async def _select(self, request: SelectModel.Request) -> tuple[bool, str]:
        if self.serving is None:
            return False, f"{self._node.get_name()} is not configured"
        if self.busy:
            return False, "a model is being loaded already: try again"
        try:
            wanted = self._requested(request, self.serving.settings)
        except InvalidInput as error:
            return False, str(error)
        answer: Future = Future()
        self.exchange(wanted, lambda success, message: answer.set_result((success, message)))
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


def _named(perception: Assessor) -> str:
    return f"{perception.settings.model} (weights {perception.model_hash[:12]})"
