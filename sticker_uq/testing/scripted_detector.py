# SPDX-License-Identifier: Apache-2.0
"""The real detector node around a perception without a model: ``python -m sticker_uq.testing.scripted_detector``.

The first pixel of an image says what is detected in it (:class:`Seen`). It loads no torch.
"""

import hashlib
import math
import threading
from dataclasses import replace
from enum import IntEnum
from typing import Any, cast

import numpy as np

from sticker_uq.nodes.common.lifecycle import run_process
from sticker_uq.nodes.detector.node import DetectorNode
from sticker_uq.perception import ImageFacts, PerceptionSettings
from sticker_uq.perception.image_facts import measure_exposure
from sticker_uq.scene import DeviceFailed, SceneAssessment, Status
from sticker_uq.testing.scenes import assessment, object_at

STICKER = object_at()
HANGS = "an assessment hangs"
"""The line of output of a detector that hangs from now on."""


class Seen(IntEnum):
    """What an image shows, or does to perception: the grey level of its first pixel."""

    STICKER = 50
    NOTHING = 60
    UNSURE = 70
    NAN = 80
    INFINITY = 90
    HANG = 100
    CRASH = 110
    DEVICE_FAILURE = 120


class ScriptedPerception:
    """Implements what :class:`~sticker_uq.nodes.detector.node.DetectorNode` needs of a perception."""

    def __init__(self, settings: PerceptionSettings) -> None:
        self.settings = settings
        self.model_hash = "m" * 64
        self.device = "cpu"
        self.shortage = self.ungraphed = ""

    def warm_up(self) -> None:
        """Nothing is to be warmed up."""

    def assess(
        self,
        image: Any,
        stamp_ns: int = 0,
        frame_id: str = "",
        keep_saliency: bool = False,
        facts: ImageFacts | None = None,
    ) -> SceneAssessment:
        """The scene that pixel 0 names. ``CRASH``: RuntimeError; ``DEVICE_FAILURE``: DeviceFailed; ``HANG``: never returns."""
        seen = Seen(image[0, 0, 0])
        if seen is Seen.HANG:
            print(HANGS, flush=True)
            threading.Event().wait()
        if seen is Seen.CRASH:
            raise RuntimeError("the image said so")
        if seen is Seen.DEVICE_FAILURE:
            raise DeviceFailed("the GPU said so")
        objects = {
            Seen.STICKER: [STICKER],
            Seen.UNSURE: [object_at(probabilities=(0.3, 0.1, 0.6), shannon_entropy=1.5)],
            Seen.NAN: [replace(STICKER, mutual_information=math.nan)],
            Seen.INFINITY: [replace(STICKER, box=np.array([100, 100, math.inf, 160], np.float32))],
        }.get(seen, [])
        height, width = image.shape[:2]
        return assessment(
            *objects,
            stamp_ns=stamp_ns,
            frame_id=frame_id,
            image_size=(width, height),
            image_digest=hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest(),
            exposure=measure_exposure(image),
        )

    def failed_assessment(self, stamp_ns: int, frame_id: str, reason: str) -> SceneAssessment:
        return assessment(
            stamp_ns=stamp_ns, frame_id=frame_id, status=Status.FAILED, status_text=reason, image_size=(0, 0)
        )


if __name__ == "__main__":
    run_process(lambda: DetectorNode(cast(Any, ScriptedPerception)))
