# SPDX-License-Identifier: Apache-2.0
"""How often the cell calls a dirty laptop clean, with and without distinctive localization.

    python -m benchmarks.missed_stickers --laptops 60

Every laptop has one sticker left, made hard to see (small, faint or blurred), or none. Perception, policy and gate are those of
the cell; all policies see the same frames, which differ by the camera's noise, until each has called the laptop clean, called
a person, or sent the arm to the sticker. `config/policy.yaml` is one policy; one has all limits on DiL, on the objectness that
no box explains, on novelty and on missed_sticker_probability switched off; the others have max_unexplained_objectness,
max_novelty, max_missed_sticker_probability or all of them at percentiles of other clean lids.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.dil_sensitivity import hard_sticker
from sticker_uq.gate import GateController, GateSettings, Policy
from sticker_uq.gate.events import (
    Activated,
    ArmReady,
    DeclareDone,
    OpenIntervention,
    SendGoal,
    WorkpieceChanged,
)
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import SceneAssessment

_SECOND = 1_000_000_000
_PERIOD = _SECOND // 10
_FRAMES = 12


@dataclass
class Course:
    """One laptop in front of one policy; ``end`` is how it ended."""

    policy: Policy
    end: str = "undecided"
    core: GateController = field(init=False)

    def __post_init__(self) -> None:
        self.core = GateController(self.policy, GateSettings())
        for event in (Activated(), ArmReady(True), WorkpieceChanged("laptop", _SECOND)):
            self.core.handle(event, _SECOND)

    def see(self, scene: SceneAssessment) -> None:
        """Let the next scene come, unless the end has come."""
        if self.end != "undecided":
            return
        for effect in self.core.on_scene(scene, scene.stamp_ns + _PERIOD // 4):
            if isinstance(effect, DeclareDone):
                self.end = "called clean"
            elif isinstance(effect, OpenIntervention):
                self.end = "person called"
            elif isinstance(effect, SendGoal):
                self.end = "arm sent"


def frame(image: NDArray[np.uint8], seed: int, number: int) -> NDArray[np.uint8]:
    """``image`` with the noise of frame ``number``."""
    noise = np.random.default_rng([seed, number]).normal(0, 2, image.shape)
    return np.clip(np.round(image + noise), 0, 255).astype(np.uint8)


LIMITS = ("max_unexplained_objectness", "max_novelty", "max_missed_sticker_probability")


def clean_lids(perception: Perception, seed: int, lids: int) -> NDArray[np.float64]:
    """What LIMITS limit, on ``lids`` clean lids, (lids, 3)."""
    found = []
    for number in range(seed, seed + lids):
        spec = sample_scene(number, stickers=1)
        bare = render(spec.without_sticker(spec.stickers[0].id)).image
        seen = perception.assess(frame(bare, number, 0)).localization
        if seen is not None:
            found.append([getattr(seen, name.removeprefix("max_")) for name in LIMITS])
    return np.array(found, np.float64)


def variants(policy: Policy, lids: NDArray[np.float64], percentiles: Sequence[float]) -> dict[str, Policy]:
    """``policy`` with one of LIMITS or all at ``percentiles`` of clean ``lids``, by name."""
    made = {}
    for percentile in percentiles:
        values = dict(zip(LIMITS, np.percentile(lids, percentile, axis=0).tolist(), strict=True))
        for chosen in (*((name,) for name in LIMITS), LIMITS):
            words = " and ".join(f"{name.removeprefix('max_')} {values[name]:.2g}" for name in chosen)
            limited = policy.model_copy(update={name: values[name] for name in chosen})
            made[f"{words}, percentile {percentile:g}"] = limited
    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--laptops", type=int, default=60)
    parser.add_argument("--seed", type=int, default=90_000)
    parser.add_argument("--policy", default="config/policy.yaml")
    parser.add_argument("--clean", type=int, default=200, help="clean lids that the percentiles are of")
    parser.add_argument("--clean-seed", type=int, default=95_000)
    parser.add_argument("--percentiles", type=float, nargs="*", default=[95.0, 90.0, 85.0, 80.0])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    perception = Perception(PerceptionSettings(device="cpu"))
    policy = Policy.load(arguments.policy)
    off = {"max_dil": 1.0, "max_dil_clean": 1.0} | dict.fromkeys(LIMITS, 1.0)
    policies = {
        "without DiL": policy.model_copy(update=off),
        f"as it is, {policy.max_unexplained_objectness:g}": policy,
    }
    lids = clean_lids(perception, arguments.clean_seed, arguments.clean)
    policies |= variants(policy.model_copy(update={LIMITS[0]: 1.0}), lids, arguments.percentiles)
    ends: Counter[tuple[str, str, str]] = Counter()
    laptops: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.laptops):
        made = hard_sticker(seed, stickers=1)
        if made is None:
            continue
        for kind, image in (("clean", made[0]), ("dirty", made[1])):
            courses = {name: Course(each) for name, each in policies.items()}
            for number in range(_FRAMES):
                scene = perception.assess(
                    frame(image, seed, number), 2 * _SECOND + number * _PERIOD, "camera"
                )
                for course in courses.values():
                    course.see(scene)
                if all(course.end != "undecided" for course in courses.values()):
                    break
            laptops[kind] += 1
            for name, course in courses.items():
                ends[kind, name, course.end] += 1
    print(f"laptops: {dict(laptops)}")
    print("| laptop | policy | called clean | person called | arm sent | undecided |")
    print("|---|---|---|---|---|---|")
    for kind in ("dirty", "clean"):
        for name in policies:
            row = [
                ends[kind, name, end] for end in ("called clean", "person called", "arm sent", "undecided")
            ]
            print(f"| {kind} | {name} | {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
