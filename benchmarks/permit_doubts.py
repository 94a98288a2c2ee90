# SPDX-License-Identifier: Apache-2.0
"""How often a permit is revoked while the arm works although nothing has changed, and how often the arm would touch no sticker.

    OMP_NUM_THREADS=1 python -m benchmarks.permit_doubts --out benchmarks/results/permit_doubts.csv

Rendered laptops as the simulated cell shows them, the same in every image, with the packaged detector and policies; no network
was trained on them and no limit chosen by them. A permit for each object that may be removed in the first ``consecutive_scenes``
images; the arm works during the next ``MOTION`` images. ``at once``: the first scene that doubts the object slightly revokes the
permit; ``in a row``: as the gate has it.
"""

import csv
import itertools
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate import GateSettings, Policy, judge
from sticker_uq.gate.box_overlap import as_box, iou
from sticker_uq.gate.permit_consistency import check_permit, surroundings
from sticker_uq.gate.state import Permit, Target
from sticker_uq.io.files import atomic_write
from sticker_uq.io.parameter_files import read_parameters
from sticker_uq.io.share import share_folder
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput, ObjectVerdict, Outcome, SceneDecision
from sticker_uq_lab.simulation.simulated_cell import SimulatedCell, SimulationSettings, Touch

FIRST_SEED = 310_000_000
MOTION = 6  # images during one removal of the simulated arm: 1.6 s at 4 Hz
SETTINGS = GateSettings()
K = SETTINGS.consecutive_scenes
RULES = {"at once": 1, "in a row": K}
"""Scenes in a row that must doubt the object slightly to revoke its permit."""
POLICIES = ("limits.yaml", "policy.yaml")
COLUMNS = (
    "policy",
    "laptops",
    "number",
    "a slight doubt revokes",
    "permits for a sticker",
    "revoked",
    "per 100",
    "permits for anything else",
    "carried out",
)


def measure(laptops: int, hard: bool, perception: Any, policies: Mapping[str, Policy]) -> list[list[Any]]:
    """One row per policy and rule."""
    settings = SimulationSettings(seed=FIRST_SEED + 10_000 * hard, hard=hard)
    counts: Counter[tuple[str, str, bool, bool]] = Counter()
    for number in range(laptops):
        cell = SimulatedCell(settings, first=number)
        scenes = []
        for image in range(K + MOTION):
            jpeg = cv2.imencode(".jpg", cell.picture(), [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality])[1]
            picture = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
            scenes.append(perception.assess(picture, (image + 1) * 250_000_000, settings.frame_id))
        for name, policy in policies.items():
            if refusal := policy.refusal(scenes[0]):
                raise InvalidInput(f"{name} is not for these scenes: {refusal}")
            decisions = [judge(scene, policy) for scene in scenes]
            for chosen in agreed(decisions[:K]):
                sticker = cell.touch(np.asarray(chosen.object.box, float))[0] is Touch.STICKER
                for rule in RULES:
                    counts[name, rule, sticker, revoked(chosen, decisions, RULES[rule])] += 1
    rows = []
    for name, rule in itertools.product(policies, RULES):
        stopped, kept = counts[name, rule, True, True], counts[name, rule, True, False]
        permits = stopped + kept
        low, high = clopper_pearson(stopped, permits)  # as if permits were independent
        share = stopped / permits if permits else math.nan
        per_100 = f"{100 * share:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        carried_out = counts[name, rule, False, False]
        wrong = [carried_out + counts[name, rule, False, True], carried_out]
        rows.append([name, "hard" if hard else "usual", laptops, rule, permits, stopped, per_100, *wrong])
    return rows


def agreed(decisions: list[SceneDecision]) -> list[ObjectVerdict]:
    """What may be removed in all of ``decisions``, as the last one has it."""
    *before, last = decisions
    if any(one.outcome is not Outcome.WORK for one in decisions):
        return []
    return [v for v in last.removable() if all(any(same(v, w) for w in one.removable()) for one in before)]


def same(one: ObjectVerdict, other: ObjectVerdict) -> bool:
    """Whether the gate takes two objects of two scenes for one."""
    return iou(as_box(one.object.box), as_box(other.object.box)) >= SETTINGS.match_iou


def revoked(chosen: ObjectVerdict, decisions: list[SceneDecision], needed: int) -> bool:
    """Whether the scenes after the first K revoke a permit for ``chosen``."""
    target, around = Target.of(chosen, decisions[K - 1], {}), surroundings(decisions[K - 1], chosen)
    permit = Permit(1, target, SETTINGS, sent_ns=1, valid_until_ns=2, around=around, accepted=True)
    doubts = 0
    for one in decisions[K:]:
        said = check_permit(permit, one, SETTINGS)
        doubts = doubts + 1 if said.doubt else 0 if said.seen else doubts
        if said.contradiction or doubts >= needed:
            return True
    return False


def main() -> None:
    """Measure and write the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--laptops", type=int, default=150, help="of each kind")
    parser.add_argument("--out", type=result_file, required=True)
    arguments = parser.parse_args()
    config = share_folder() / "config"
    known = read_parameters(config / "cell.yaml", "detector")
    given = {name: value for name, value in known.items() if name in PerceptionSettings.model_fields}
    perception = load_perception(PerceptionSettings(**given))
    policies = {name: Policy.load(config / name) for name in POLICIES}
    rows = [row for hard in (False, True) for row in measure(arguments.laptops, hard, perception, policies)]
    with atomic_write(arguments.out, "w") as stream:
        csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
