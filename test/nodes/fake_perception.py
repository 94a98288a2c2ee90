# SPDX-License-Identifier: Apache-2.0
"""A perception that is quick, obedient and watched, in place of the real one; runs as a node process too."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sticker_uq import scene as sc
from sticker_uq.nodes.common.lifecycle import exit_process, run_node
from sticker_uq.nodes.detector.node import DetectorNode
from sticker_uq.perception import ImageFacts, PerceptionSettings
from sticker_uq.scene import InvalidInput


@dataclass
class Script:
    """What the fakes do, and what they were asked. ``hold`` makes an assessment wait until ``go`` is set."""

    go: threading.Event = field(default_factory=threading.Event)
    busy: threading.Event = field(default_factory=threading.Event)
    hold: bool = False
    warm_ups: int = 0
    device: str = "cuda:0 Scripted"
    shortage: str = ""
    assessed: list[int] = field(default_factory=list)
    saliency_asked: list[bool] = field(default_factory=list)

    def factory(self, settings: PerceptionSettings) -> FakePerception:
        if settings.weights:
            raise InvalidInput(f"weights file {settings.weights!r}: no such file")
        return FakePerception(settings, self)


class FakePerception:
    """Sees one sticker in every picture, as wide as its mean grey. Black pictures raise, white ones are not finite."""

    def __init__(self, settings: PerceptionSettings, script: Script) -> None:
        self.settings = settings
        self.model_hash = hashlib.sha256(settings.model.encode()).hexdigest()
        self._script = script

    @property
    def device(self) -> str:
        return self._script.device

    @property
    def shortage(self) -> str:
        return self._script.shortage

    graph_problems = ""

    def warm_up(self) -> None:
        self._script.warm_ups += 1

    def assess(
        self,
        image: Any,
        stamp_ns: int = 0,
        frame_id: str = "",
        keep_saliency: bool = False,
        facts: ImageFacts | None = None,
    ) -> sc.SceneAssessment:
        script = self._script
        script.busy.set()
        if script.hold:
            print("an assessment waits", flush=True)
            assert script.go.wait(300)
        script.assessed.append(stamp_ns)
        script.saliency_asked.append(keep_saliency)
        grey = float(image.mean())
        if grey == 0:
            raise RuntimeError("the model is afraid of the dark")
        if grey == 255:
            return self.failed_assessment(stamp_ns, frame_id, "non-finite output")
        height, width = image.shape[:2]
        sticker = sc.ObservedObject(
            0, sc.ObjectClass.STICKER, np.array([0, 0, grey, 2], np.float32), np.array([0, 0, 1], np.float32),
            20, 20, 1.0, False, False, np.eye(4), (),
            **dict.fromkeys(sc.METRICS, 0.1),
        )  # fmt: skip
        saliency = np.full((height, width), 0.5, np.float32) if keep_saliency else None
        return self._scene(
            stamp_ns, frame_id, sc.Status.OK, "", (width, height), (sticker,),
            sc.Localization(4.0, 1.0, 0.25, 0.5, saliency), {"encode": 1.5, "total": 2.5},
        )  # fmt: skip

    def failed_assessment(self, stamp_ns: int, frame_id: str, reason: str) -> sc.SceneAssessment:
        return self._scene(stamp_ns, frame_id, sc.Status.FAILED, reason, (0, 0), (), None, {})

    def _scene(
        self,
        stamp_ns: int,
        frame_id: str,
        status: sc.Status,
        text: str,
        size: tuple[int, int],
        objects: tuple[sc.ObservedObject, ...],
        localization: sc.Localization | None,
        timings: dict[str, float],
    ) -> sc.SceneAssessment:
        settings = self.settings
        return sc.SceneAssessment(
            stamp_ns, frame_id, status, text, size, "digest", settings.model, self.model_hash, "settings",
            settings.passes, settings.dropout_rate, objects, (),
            sc.ImageUncertainty(len(objects), 0), localization, timings,
            sc.Exposure(90.0, 0.0, 0.0),
        )  # fmt: skip


def detector_with(script: Script) -> Callable[..., DetectorNode]:
    """A constructor of detector nodes that use the fake."""

    def make(**arguments: Any) -> DetectorNode:
        return DetectorNode(script.factory, **arguments)

    return make


def main() -> None:
    """The node as a process; with ``endless`` as argument its assessments never end."""
    exit_process(run_node(detector_with(Script(hold="endless" in sys.argv))))


if __name__ == "__main__":
    main()
