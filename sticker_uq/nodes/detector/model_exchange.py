# SPDX-License-Identifier: Apache-2.0
"""Replaces the detector node's model at run time without interrupting the assessment of images."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from rclpy.exceptions import InvalidHandle
from rclpy.node import Node

from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception

Factory = Callable[[PerceptionSettings], "Perception"]


class ModelExchange:
    """Holds the detector node's current perception, and loads another in a thread while it serves.

    ``factory`` makes perception from its settings; ``served`` is called with the current settings after every exchange,
    successful or not. Call all methods but :meth:`current` from the executor's thread.
    """

    def __init__(self, node: Node, factory: Factory, served: Callable[[PerceptionSettings], None]) -> None:
        self._node = node
        self._factory = factory
        self._served = served
        self.serving: Perception | None = None
        self._guard = node.create_guard_condition(self._finish)
        self._thread: threading.Thread | None = None
        self._result: Perception | str = ""

    @property
    def busy(self) -> bool:
        return self._thread is not None

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

    def exchange(self, wanted: PerceptionSettings) -> None:
        """Load the model ``wanted`` in the background; it serves once it is ready, and the old one where it cannot be loaded."""
        if self.busy:
            raise RuntimeError("a model is being loaded")
        self._thread = threading.Thread(target=self._run, args=(wanted,), name="background", daemon=True)
        self._thread.start()

    def _run(self, wanted: PerceptionSettings) -> None:
        try:
            self._result = self._loaded(wanted)
        except InvalidInput as error:
            self._result = f"{wanted.model} could not be loaded: {error}"
        except Exception as error:  # noqa: BLE001 - the old model goes on
            self._result = f"{wanted.model} could not be loaded: {type(error).__name__}: {error}"
            self._node.get_logger().debug(traceback.format_exc())
        with contextlib.suppress(InvalidHandle):  # the node was destroyed meanwhile
            self._guard.trigger()

    def _finish(self) -> None:
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        result, self._result = self._result, ""
        if self.serving is None:  # cleaned up meanwhile
            return
        if isinstance(result, str):
            self._node.get_logger().error(f"{result}; the model before it goes on")
        else:
            self.serving = result
        self._served(self.serving.settings)

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
