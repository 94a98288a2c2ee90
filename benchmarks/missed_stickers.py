"""How often the cell calls a dirty laptop clean, with and without the limit on what no box explains.

    python -m benchmarks.missed_stickers --laptops 60

Every laptop has one sticker left, made hard to see (small, faint or blurred), or none. Perception, policy and gate are those of
the cell; both policies see the same frames, which differ by the camera's noise, until each has called the laptop clean, called
a person, or sent the arm to the sticker. `config/policy.yaml` is one policy; the other differs by max_unexplained_objectness = 1.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.dil_sensitivity import hard_sticker
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import SceneAssessment
from sticker_uq.supervision import GateSettings, Policy, Supervisor
from sticker_uq.supervision.events import (
    Activated,
    ArmReady,
    DeclareDone,
    OpenIntervention,
    SendGoal,
    WorkpieceChanged,
)

_SECOND = 1_000_000_000
_PERIOD = _SECOND // 10
_FRAMES = 12


@dataclass
class Course:
    """One laptop in front of one policy; ``end`` is how it ended."""

    policy: Policy
    end: str = "undecided"
    core: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        self.core = Supervisor(self.policy, GateSettings())
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--laptops", type=int, default=60)
    parser.add_argument("--seed", type=int, default=90_000)
    parser.add_argument("--policy", default="config/policy.yaml")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    perception = Perception(PerceptionSettings(device="cpu"))
    policy = Policy.load(arguments.policy)
    policies = {
        f"max_unexplained_objectness {policy.max_unexplained_objectness:g}": policy,
        "without it": policy.model_copy(update={"max_unexplained_objectness": 1.0}),
    }
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
