# SPDX-License-Identifier: Apache-2.0
"""The cell of :mod:`benchmarks.reaction` with the packaged detector, which is always busy with rendered lids."""

from __future__ import annotations

import itertools
from typing import Any

from rclpy.time import Time
from sensor_msgs.msg import Image

from sticker_uq.cell.processes import ProcessSpec
from sticker_uq.gate import BlockReason
from sticker_uq.io.share import share_folder
from sticker_uq.nodes.common.conversions import stamp_to_ns
from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.simulation.simulated_cell import SimulatedCell, SimulationSettings
from sticker_uq.testing.fault_cell import FaultCell
from sticker_uq_msgs.msg import GateState

LID_RATE_HZ = 10.0
PICTURES: dict[str, tuple[BlockReason, dict[str, Any]]] = {
    "black picture": (BlockReason.EXPOSURE, {"level": 0}),
    "overexposed picture": (BlockReason.EXPOSURE, {"level": 255}),
    "frozen picture": (BlockReason.FROZEN_IMAGE, {"copies": 3}),
    "wrong encoding": (BlockReason.FAILED_SCENE, {"encoding": "nonsense"}),
    "giant picture that claims more than it holds": (
        BlockReason.FAILED_SCENE,
        {"width": 2**31, "step": 2**32 - 1},
    ),
    "reordered stamps": (BlockReason.STAMP_ORDER, {"seconds": -1.0}),
    "stamp in the future": (BlockReason.CLOCK, {"seconds": 1.0}),
}
"""Name of a picture to the reason for which it must close the gate, and how it differs from a lid."""


class RealCell(FaultCell):
    """Shows lids faster than the detector can look at them, and pictures of :data:`PICTURES` among them."""

    def node(self, kind: str, name: str = "") -> ProcessSpec:
        """The packaged detector, the scripted arm."""
        if kind != "detector":
            return super().node(kind, name)
        packaged = share_folder() / "config" / "cell.yaml"
        return ProcessSpec("detector", name or "detector", "", packaged, {"autostart": True})

    def film(self) -> None:
        """Show lids from now on."""
        simulated = SimulatedCell(SimulationSettings())
        self._lids = itertools.cycle([simulated.picture() for _ in range(10)])
        self._shows = True
        self.bench.probe.create_timer(1.0 / LID_RATE_HZ, self._show)
        self.until(lambda: len(self.scenes) >= 3, "scenes of the packaged detector")

    def _show(self) -> None:
        if self._shows:
            self.camera.publish(self._lid(next(self._lids)))

    def _lid(self, picture: Any, seconds: float = 0.0, **changes: Any) -> Image:
        """``picture`` as an image taken now, or ``seconds`` from now."""
        stamp = Time(nanoseconds=self.now_ns() + round(seconds * 1e9)).to_msg()
        image = bgr_to_image(picture, stamp, "camera")
        for name, value in changes.items():
            setattr(image, name, value)
        return image

    def reaction(self, name: str) -> float:
        """From the publication of one picture of :data:`PICTURES` to the first closed gate that has its reason; ms."""
        reason, changes = PICTURES[name]
        changes = dict(changes)
        level, copies = changes.pop("level", None), changes.pop("copies", 1)
        self.until(lambda: not self.gates[-1].reasons & reason, "a gate without that reason")
        scenes = len(self.scenes)
        self.until(lambda: len(self.scenes) > scenes, "a scene: the detector begins with the next lid now")
        picture = next(self._lids)
        if level is not None:
            picture = picture * 0 + level
        self._shows = False  # a newer picture would take its place
        for _ in range(copies - 1):
            copy = self._lid(picture)
            self.camera.publish(copy)
            self.until_arrived(copy)
        said = len(self.gates)
        start = self.now_ns()
        self.camera.publish(self._lid(picture, **changes))

        def closed() -> GateState | None:
            return next((g for g in self.gates[said:] if g.reasons & reason), None)

        gate = self.until(closed, f"a gate closed for {reason!r}")
        self._shows = True
        return (stamp_to_ns(gate.header.stamp) - start) / 1e6
