# SPDX-License-Identifier: Apache-2.0
"""Node ``shadow``: what the policy of a candidate bundle decides about the scenes of the candidate's detector, counted.

It publishes /diagnostics and nothing else: there is no gate, no permit and no question in it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.shadow_settings import ShadowSettings
from sticker_uq.evaluation.shadow.comparison import ShadowComparison
from sticker_uq.evaluation.shadow.differences import (
    ANSWERED,
    IMAGES,
    NO_ACTIVE,
    NO_CANDIDATE,
    OTHER_BUNDLE,
    OTHER_PIXELS,
    asks,
    total,
)
from sticker_uq.evaluation.shadow.record import ShadowRecord
from sticker_uq.gate import Policy
from sticker_uq.nodes.common.conversions import scene_from_msg
from sticker_uq.nodes.common.diagnostics import Diagnostics, Level, Report
from sticker_uq.nodes.common.lifecycle import exit_process, run_node
from sticker_uq.nodes.common.log_folder import default_folder
from sticker_uq.nodes.common.parameters import declare_settings, read_settings
from sticker_uq.nodes.common.qos import RELIABLE
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs.msg import SceneAssessment, SceneDecision

TICK_S = 1.0


class Shadow(Node):
    """The node; see the module's docstring. Raises :class:`InvalidInput` for a bundle that is not whole and a folder in use."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("shadow", **arguments)
        declare_settings(self, ShadowSettings)
        settings: ShadowSettings = read_settings(self, ShadowSettings)
        if not settings.bundle:
            raise InvalidInput("parameter bundle = '': expected the folder of the candidate's bundle")
        bundle = Bundle.load(settings.bundle)
        folder = Path(settings.folder).expanduser() if settings.folder else default_folder(self, "shadow")
        self._record = ShadowRecord(folder)
        self.comparison = ShadowComparison(
            Policy.load(bundle.policy), bundle.hashes(), self._record, settings.max_waiting
        )
        self._bundle = bundle
        self._silent_after_s = settings.silent_after_s
        self._heard = time.monotonic()
        self._unreadable = 0
        self._heard_once = False
        self.create_subscription(SceneAssessment, "scene", self._on_scene, RELIABLE)
        self.create_subscription(SceneDecision, "decision", self._on_decision, RELIABLE)
        self.create_subscription(SceneAssessment, "shadow/scene", self._on_candidate, RELIABLE)
        # the time of the lines is the wall's: a simulated clock may stand still
        self.create_timer(
            TICK_S,
            lambda: self.comparison.tick(time.time_ns()),
            clock=Clock(clock_type=ClockType.STEADY_TIME),
        )
        self._diagnostics = Diagnostics(self)
        self._diagnostics.add("comparison", self._report)
        self.get_logger().info(f"compares bundle {bundle.folder} ({bundle.hash[:12]}), counts in {folder}")

    def destroy_node(self) -> None:
        """Write what the shadow node counted."""
        self.comparison.close(time.time_ns())
        if self.comparison.problem:
            self.get_logger().error(f"the last counts could not be written: {self.comparison.problem}")
        self._record.close()
        super().destroy_node()

    def _on_scene(self, message: SceneAssessment) -> None:
        try:
            self.comparison.add_scene(scene_from_msg(message), time.time_ns())
        except InvalidInput:
            self._unreadable += 1

    def _on_decision(self, message: SceneDecision) -> None:
        self.comparison.add_decision(message, time.time_ns())

    def _on_candidate(self, message: SceneAssessment) -> None:
        self._heard, self._heard_once = time.monotonic(), True
        try:
            self.comparison.add_candidate(scene_from_msg(message), time.time_ns())
        except InvalidInput:
            self._unreadable += 1

    def _report(self) -> Report:
        counts, comparison = self.comparison.counts, self.comparison
        values = {
            "candidate": self._bundle.hash,
            "images": counts[IMAGES],
            "outcomes_differ": total(counts, "outcome", differing=True),
            "released_by_candidate_only": counts["released candidate"],
            "released_by_active_only": counts["released active"],
            "labels_differ": total(counts, "label"),
            "questions_active": asks(counts)[0],
            "questions_candidate": asks(counts)[1],
            "without_candidate": counts[NO_CANDIDATE],
            "without_active": counts[NO_ACTIVE],
            "answered": counts[ANSWERED],
            "other_pixels": counts[OTHER_PIXELS],
            "other_bundle": counts[OTHER_BUNDLE],
            "unreadable": self._unreadable,
            "waiting": comparison.waiting,
            "lost": comparison.lost,
            "file": str(self._record.path),
        }
        level, message = self._state()
        return Report(level, message, values)

    def _state(self) -> tuple[Level, str]:
        silent_s = time.monotonic() - self._heard
        if self.comparison.problem:
            return Level.ERROR, f"counts cannot be written: {self.comparison.problem}"
        if self.comparison.skipped == OTHER_BUNDLE:
            return Level.ERROR, (
                "scenes on shadow/scene have other hashes than the candidate: run `sticker-uq bundle verify` on this machine"
            )
        if silent_s > self._silent_after_s:
            since = f"for {silent_s:.0f} s" if self._heard_once else "since the start"
            return Level.WARN, f"no scene of the candidate {since}; {self.comparison.summary()}"
        return Level.OK, self.comparison.summary()


def main() -> None:
    """Run the ROS node ``shadow`` and end the process with its exit status."""
    exit_process(run_node(Shadow))


if __name__ == "__main__":
    main()
