# SPDX-License-Identifier: Apache-2.0
"""How often a permit is revoked while the arm works although nothing has changed, and how often the arm would touch no sticker.

    OMP_NUM_THREADS=1 python -m benchmarks.permit_doubts --out benchmarks/results/permit_doubts.json

Rendered laptops as the simulated cell shows them, the same one in every image, with the packaged detector and policy. A permit
for each sticker that may be removed in ``consecutive_scenes`` images in a row; the arm works during the next MOTION images.
``at once``: a pass that sees the sticker twice revokes the permit at once; ``in a row``: as the gate has it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np

from benchmarks.result_files import result_file
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate import GateSettings, Policy, judge
from sticker_uq.gate import permit_consistency as consistency
from sticker_uq.gate.box_overlap import as_box, iou
from sticker_uq.gate.state import Permit, Target
from sticker_uq.io.parameter_files import read_parameters
from sticker_uq.io.share import share_folder
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import ObjectVerdict, SceneDecision
from sticker_uq.simulation.simulated_cell import SimulatedCell, SimulationSettings, Touch

FIRST_SEED = 2000
MOTION = 6
"""Images during one removal of the simulated arm: 1.6 s at 4 Hz."""
IMAGES = 10
NOWHERE = (0.0, 0.0, 1.0, 1.0)
SETTINGS = GateSettings()
RULES = {"at once": True, "in a row": False}


def measure(laptops: int, hard: bool, perception: Any, policy: Policy) -> list[dict[str, Any]]:
    """One row per rule."""
    counts = {rule: {"permits": 0, "aborted": 0, "wrongful": 0} for rule in RULES}
    for number in range(laptops):
        settings = SimulationSettings(seed=FIRST_SEED + number + 1000 * hard, hard=hard)
        cell = SimulatedCell(settings)
        decisions = []
        for image in range(IMAGES):
            quality = [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality]
            picture = cv2.imdecode(cv2.imencode(".jpg", cell.picture(), quality)[1], cv2.IMREAD_COLOR)
            decisions.append(judge(perception.assess(picture, (image + 1) * 250_000_000, "camera"), policy))
        for start in range(SETTINGS.consecutive_scenes - 1, IMAGES - MOTION):
            for chosen in _agreed(decisions[: start + 1]):
                right = cell.touched_by(np.asarray(chosen.object.box, float))[0] is Touch.STICKER
                for rule, at_once in RULES.items():
                    later = decisions[start + 1 : start + 1 + MOTION]
                    aborted = _aborted(chosen, decisions[start], later, at_once)
                    counts[rule]["permits"] += 1
                    counts[rule]["aborted"] += aborted
                    counts[rule]["wrongful"] += not aborted and not right
        print(f"{number + 1} of {laptops}", flush=True)
    kind = "a sticker partly on a logo" if hard else "usual"
    return [{"laptops": kind, "number": laptops, "rule": rule, **found} for rule, found in counts.items()]


def _agreed(decisions: list[SceneDecision]) -> list[ObjectVerdict]:
    """What may be removed in the last ``consecutive_scenes`` of ``decisions``, as the last one has it."""
    *before, last = decisions[-SETTINGS.consecutive_scenes :]
    return [v for v in last.removable() if all(any(_same(v, w) for w in one.removable()) for one in before)]


def _same(one: ObjectVerdict, other: ObjectVerdict) -> bool:
    return iou(as_box(one.object.box), as_box(other.object.box)) >= SETTINGS.match_iou


def _aborted(
    chosen: ObjectVerdict, decision: SceneDecision, later: list[SceneDecision], at_once: bool
) -> bool:
    around = consistency.surroundings(decision, chosen)
    target = Target.of(chosen, decision, {})
    permit = Permit(1, target, SETTINGS, sent_ns=1, valid_until_ns=2, around=around, accepted=True)
    slight, doubts = consistency.is_slight, 0

    def strict(verdict: ObjectVerdict, margin: float, place: Any) -> bool:
        return slight(verdict, margin, NOWHERE if at_once else place)

    with patch.object(consistency, "is_slight", strict):
        for one in later:
            said = consistency.check_permit(permit, one, SETTINGS)
            doubts = doubts + 1 if said.doubt else 0 if said.seen else doubts
            if said.contradiction or doubts >= SETTINGS.consecutive_scenes:
                return True
    return False


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a result file."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """``rows`` in Markdown, with 95 % intervals that take permits as independent."""
    lines = [
        "| laptops | number | seen twice revokes | permits | aborted | per 100 | wrongful removals |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = clopper_pearson(row["aborted"], row["permits"])
        share = f"{100 * row['aborted'] / row['permits']:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        cells = (
            row["laptops"],
            row["number"],
            row["rule"],
            row["permits"],
            row["aborted"],
            share,
            row["wrongful"],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--usual", type=int, default=30)
    parser.add_argument("--hard", type=int, default=10)
    parser.add_argument("--out", type=result_file)
    arguments = parser.parse_args()
    config = share_folder() / "config"
    known = read_parameters(config / "cell.yaml", "detector")
    given = {name: value for name, value in known.items() if name in PerceptionSettings.model_fields}
    perception, policy = load_perception(PerceptionSettings(**given)), Policy.load(config / "policy.yaml")
    rows = [
        *measure(arguments.usual, False, perception, policy),
        *measure(arguments.hard, True, perception, policy),
    ]
    print(table(rows))
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
