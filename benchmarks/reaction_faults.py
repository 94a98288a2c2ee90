# SPDX-License-Identifier: Apache-2.0
"""The faults whose reaction :mod:`benchmarks.reaction` measures, each with how it is done and since when it counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sticker_uq.gate import BlockReason
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.conversions import scene_to_msg, stamp_to_ns
from sticker_uq.testing.clock import SimulatedClock
from sticker_uq.testing.fault_cell import FaultCell
from sticker_uq.testing.scenes import assessment
from sticker_uq.testing.scripted_detector import STICKER, Seen
from sticker_uq_msgs.msg import GateState, SceneAssessment


class Reactions:
    """Does one fault after the other in ``cell``, whose newest scene may be ``max_scene_age_s`` old."""

    def __init__(self, cell: FaultCell, max_scene_age_s: float) -> None:
        self._cell = cell
        self._max_scene_age_s = max_scene_age_s
        self._hung = False
        self._said = 0

    # how it ends

    def _closed_ns(self, reason: BlockReason) -> int:
        """When the first closed gate since :meth:`_mark` was said, once one came for this reason."""
        self._cell.until(
            lambda: any(g.reasons & reason for g in self._heard()), f"a gate closed for {reason!r}"
        )
        first = next(g for g in self._heard() if not g.open)
        return stamp_to_ns(first.header.stamp)

    def _heard(self) -> list[GateState]:
        return self._cell.gates[self._said :]

    def _mark(self) -> int:
        """Forget what was said until now; the time."""
        self._said = len(self._cell.gates)
        return self._cell.now_ns()

    # pictures and scenes

    def picture(
        self,
        reason: BlockReason,
        seen: Seen = Seen.STICKER,
        level: int = 120,
        size: tuple[int, int] = (640, 480),
        **changes: Any,
    ) -> float:
        """From the stamp of one picture, or from its publication where to make it takes long, to the gate."""
        self._cell.camera.shows()
        image = self._cell.camera.picture(seen, *size, level=level)
        for name, value in changes.items():
            setattr(image, name, value)
        start = self._mark() if size != (640, 480) else stamp_to_ns(image.header.stamp)
        self._mark()
        self._cell.camera.publish(image)
        return (self._closed_ns(reason) - start) / 1e6

    def stamped(self, reason: BlockReason, seconds: float) -> float:
        """From the publication of a picture whose stamp is wrong by ``seconds``."""
        self._cell.camera.shows()
        stamp_ns = self._cell.now_ns() + round(seconds * 1e9)
        image = self._cell.camera.picture(Seen.STICKER, stamp_ns=stamp_ns)
        start = self._mark()
        self._cell.camera.publish(image)
        return (self._closed_ns(reason) - start) / 1e6

    def duplicate(self) -> float:
        """From the publication of a second picture with the stamp of the first."""
        cell = self._cell
        cell.camera.shows()
        first = cell.camera.picture(Seen.STICKER)
        second = cell.camera.picture(Seen.STICKER, stamp_ns=stamp_to_ns(first.header.stamp))
        cell.camera.publish(first)
        cell.until_arrived(first)
        start = self._mark()
        cell.camera.publish(second)
        return (self._closed_ns(BlockReason.STAMP_ORDER) - start) / 1e6

    def frozen(self) -> float:
        """From the stamp of the third of three identical pictures."""
        cell = self._cell
        cell.camera.shows()
        image = cell.camera.picture(Seen.STICKER)
        for number in range(3):
            image.header.stamp = cell.camera.picture(Seen.STICKER).header.stamp
            start = self._mark()
            cell.camera.publish(image)
            if number < 2:
                cell.until_arrived(image)
        return (self._closed_ns(BlockReason.FROZEN_IMAGE) - start) / 1e6

    def scene(self, **changes: Any) -> float:
        """From the stamp of a scene that no detector of this version says."""
        with self._cell.in_place_of_detector() as publisher:
            # the detector has gone, which closes too: a good scene comes first
            publisher.publish(scene_to_msg(assessment(STICKER, stamp_ns=self._cell.now_ns())))
            self._cell.until_gate(GateState.STATE_MONITORING)
            message: SceneAssessment = scene_to_msg(assessment(STICKER, stamp_ns=self._cell.now_ns()))
            for name, value in changes.items():
                setattr(message if hasattr(message, name) else message.objects[0], name, value)
            self._mark()
            publisher.publish(message)
            return (self._closed_ns(BlockReason.FAILED_SCENE) - stamp_to_ns(message.header.stamp)) / 1e6

    def silence(self, cause: Callable[[], None]) -> float:
        """From the time at which the newest scene became too old."""
        scenes = len(self._cell.scenes)
        self._cell.until(lambda: len(self._cell.scenes) > scenes, "a scene: its stamp is heard here, too")
        self._mark()
        cause()
        closed = self._closed_ns(BlockReason.STALE_SCENE)
        newest = max(stamp_to_ns(scene.header.stamp) for scene in self._cell.scenes)
        return (closed - newest) / 1e6 - self._max_scene_age_s * 1e3

    def stall(self) -> None:
        """The camera takes no picture any more."""
        self._cell.camera.shows()

    def hang(self) -> None:
        """Perception never comes back from the next picture."""
        self._hung = True
        self._cell.camera.shows(Seen.HANG)

    # people, disk, other publishers

    def person(self) -> float:
        """From the call of the service ``hold``."""
        start = self._mark()
        self._cell.hold(True)
        closed = self._closed_ns(BlockReason.HELD)
        self._cell.hold(False)
        return (closed - start) / 1e6

    def disk_full(self) -> float:
        """From the call that writes the first entry for which there is no space."""
        cell = self._cell
        start = self._mark()
        cell.disk_full(
            "supervisor", max(path.stat().st_size for path in cell.audit_folder.glob("audit-*.jsonl")) + 10
        )
        try:
            cell.answer(
                0, request_id="nobody asked", answers=[]
            )  # an answer that is refused is recorded, too
            return (self._closed_ns(BlockReason.AUDIT) - start) / 1e6
        finally:
            cell.disk_full("supervisor", None)

    def second_publisher(self) -> float:
        """From the message of somebody who says that the gate is open."""
        publisher = self._second_publisher(qos.GATE)
        try:
            start = self._mark()
            publisher.publish(GateState(supervisor="second", state=GateState.STATE_MONITORING))
            self._cell.until(
                lambda: any(g.reasons & BlockReason.SECOND_GATE_PUBLISHER for g in self._heard()),
                "a gate closed for a second publisher",
            )
            own = [g for g in self._heard() if g.supervisor != "second" and not g.open]
            return (stamp_to_ns(own[0].header.stamp) - start) / 1e6
        finally:
            self._cell.bench.probe.destroy_publisher(publisher)

    def _second_publisher(self, profile: Any) -> Any:
        """A publisher of the gate that is known to be there, and stands by."""
        publisher = self._cell.gate_publisher(profile)
        self._cell.until(lambda: publisher.get_subscription_count() >= 3, "supervisor, arm and test hear it")
        publisher.publish(GateState(supervisor="second", reasons=int(BlockReason.NOT_ACTIVE)))
        self._cell.works()
        return publisher

    def unheard(self) -> float:
        """From the creation of a publisher that cannot be heard."""
        start = self._mark()
        publisher = self._cell.gate_publisher(qos.NEWEST_IMAGE_BEST_EFFORT)
        try:
            return (self._closed_ns(BlockReason.UNKNOWN_GATE_PUBLISHER) - start) / 1e6
        finally:
            self._cell.bench.probe.destroy_publisher(publisher)

    # processes

    def killed_detector(self) -> float:
        """From the kill to the gate."""
        start = self._mark()
        self._cell.kill("detector")
        return (self._closed_ns(BlockReason.FAILED_SCENE) - start) / 1e6

    def killed_arm(self) -> float:
        """From the kill to the gate; an arm that is dead does not move."""
        cell = self._cell
        before = cell.arm_servers()
        start = self._mark()
        cell.kill("arm")
        closed = self._closed_ns(BlockReason.ARM_FAILED)
        cell.until(lambda: len(cell.arm_servers()) == 1 and cell.arm_servers() != before, "the next arm")
        return (closed - start) / 1e6

    def hanging(self, name: str, reason: BlockReason) -> float:
        """From the moment at which a process runs no further to the gate."""
        start = self._mark()
        self._cell.stop(name, True)
        try:
            return (self._closed_ns(reason) - start) / 1e6
        finally:
            self._cell.stop(name, False)

    def killed_supervisor(self) -> float:
        """From the kill to the end of the motion."""
        cell = self._cell
        killed = cell.gates[-1].supervisor
        milliseconds = self._stopped(lambda: cell.kill("supervisor"))
        cell.until(lambda: cell.gates[-1].supervisor != killed, "the next supervisor")
        return milliseconds

    def hanging_supervisor(self) -> float:
        """From the moment at which the supervisor runs no further to the end of the motion."""
        try:
            return self._stopped(lambda: self._cell.stop("supervisor", True))
        finally:
            self._cell.stop("supervisor", False)

    def _stopped(self, cause: Callable[[], None]) -> float:
        cell, steps = self._cell, len(self._cell.steps)
        cell.until(lambda: len(cell.steps) > steps, "an arm that moves now")
        stops = len(cell.stopped)
        start = cell.now_ns()
        cause()
        cell.until(lambda: len(cell.stopped) > stops, "an arm that has stopped")
        return (stamp_to_ns(cell.stopped[stops].stamp) - start) / 1e6

    def recover(self) -> None:
        """Bring the arm to move again."""
        cell = self._cell
        if self._hung:
            self._hung = False
            cell.kill("detector")
        cell.quiet()  # the supervisor asks a person after a number of stops
        cell.hold(False)
        cell.works()


class Fault(NamedTuple):
    """``once`` does it and returns milliseconds; it gets one in ``share`` of the repetitions; ``since``: from when it counts."""

    once: Callable[[Reactions], float]
    since: str
    share: int = 1


STAMP, SILENT = "stamp of the picture", "newest scene older than max_scene_age_s"
FAULTS: dict[str, Fault] = {
    "black picture": Fault(lambda r: r.picture(BlockReason.EXPOSURE, level=0), STAMP),
    "overexposed picture": Fault(lambda r: r.picture(BlockReason.EXPOSURE, level=255), STAMP),
    "frozen picture": Fault(Reactions.frozen, "publication of the third identical picture"),
    "wrong encoding": Fault(lambda r: r.picture(BlockReason.FAILED_SCENE, encoding="nonsense"), STAMP),
    "giant picture that claims more than it holds": Fault(
        lambda r: r.picture(BlockReason.FAILED_SCENE, width=2**31, step=2**32 - 1), STAMP
    ),
    "giant picture that is one": Fault(
        lambda r: r.picture(BlockReason.SOURCE_CHANGED, size=(6000, 4000)), "publication", 4
    ),
    "reordered stamps": Fault(lambda r: r.stamped(BlockReason.STAMP_ORDER, -1.0), "publication"),
    "stamp in the future": Fault(lambda r: r.stamped(BlockReason.CLOCK, 1.0), "publication"),
    "duplicate stamps": Fault(Reactions.duplicate, "publication of the second one"),
    "NaN in the scene": Fault(lambda r: r.picture(BlockReason.IMPLAUSIBLE_SCENE, Seen.NAN), STAMP),
    "perception raises": Fault(lambda r: r.picture(BlockReason.FAILED_SCENE, Seen.CRASH), STAMP),
    "unknown enumeration": Fault(lambda r: r.scene(status=200), "stamp of the scene"),
    "arrays that do not fit together": Fault(lambda r: r.scene(probabilities=[1.0]), "stamp of the scene"),
    "hold by a person": Fault(Reactions.person, "call of the service"),
    "second supervisor speaks": Fault(Reactions.second_publisher, "its message", 4),
    "second supervisor that is not heard": Fault(Reactions.unheard, "creation of its publisher", 4),
    "disk full for the audit log": Fault(Reactions.disk_full, "first entry that does not fit", 4),
    "camera stalls": Fault(lambda r: r.silence(r.stall), SILENT, 4),
    "perception hangs": Fault(lambda r: r.silence(r.hang), SILENT, 4),
    "detector killed": Fault(Reactions.killed_detector, "kill", 4),
    "detector hangs": Fault(lambda r: r.hanging("detector", BlockReason.FAILED_SCENE), "SIGSTOP", 4),
    "arm killed": Fault(Reactions.killed_arm, "kill", 4),
    "arm hangs": Fault(lambda r: r.hanging("arm", BlockReason.ARM_FAILED), "SIGSTOP", 4),
    "supervisor killed": Fault(Reactions.killed_supervisor, "kill; ends when the arm stops", 2),
    "supervisor hangs": Fault(Reactions.hanging_supervisor, "SIGSTOP; ends when the arm stops", 4),
}
"""All of them by name, the quick ones first."""


def clock_jump(cell: FaultCell, clock: SimulatedClock, seconds: float) -> float:
    """From the jump of the clock to the arrival of the first closed gate, by a clock that does not jump; ms."""
    cell.quiet()  # the supervisor asks a person after a number of stops
    cell.hold(False)
    cell.works()
    said = len(cell.gates)
    start = time.monotonic()
    clock.jump(seconds)
    cell.until(lambda: any(not g.open for g in cell.gates[said:]), "a closed gate")
    return (time.monotonic() - start) * 1e3
