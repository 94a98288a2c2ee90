# SPDX-License-Identifier: Apache-2.0
"""What the gate releases on photographs of things that no model was trained on, and what its guard against them costs.

    python -m benchmarks.photographs --to photographs
    python -m benchmarks.unfamiliar --photographs photographs --out benchmarks/results/unfamiliar.json

Every photograph and as many rendered laptops of unseen seeds are assessed with the packaged weights. Both shipped policies judge
them as they are, and without their limits on scene distance and object novelty. The limits were set on the laptops of the
seeds from FIT on, to be asked about 1 in 100 of these, after looser ones (1.0 and 0.65) had released something on 8 photographs.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.photographs import load_photographs
from benchmarks.rendered import Recipe, records
from benchmarks.result_files import result_file
from sticker_uq.evaluation.metrics.statistics import clopper_pearson, roc_interval
from sticker_uq.evaluation.replay.assessment_json import assessment_from_plain, assessment_to_plain
from sticker_uq.gate import Policy, judge
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import Outcome, SceneAssessment, Verdict

FIT, TEST = 9_000_000, 140_000_000
"""First seeds of the laptops that the limits were chosen on, and of those that are measured."""
POLICIES = ("policy.yaml", "policy_thorough.yaml")
FAMILIAR = "rendered"
_CONFIG = Path(__file__).parents[1] / "config"
_OFF = {"max_scene_distance": 1e6, "max_object_novelty": 1.0, "unmeasured_novelty": "release"}
MEASURES = {
    "scene_distance": "scene distance",
    "novelty": "novelty of the scene",
    "unexplained_objectness": "unexplained objectness",
    "object_novelty": "highest object novelty",
    "doubt": "1 - highest score",
}


@dataclass(frozen=True)
class Row:
    """One picture: its measures by name, and by policy what is ``released`` of it with and without the two limits.

    ``asked``: whether the limits alone make the gate ask about the picture or about an object of it.
    """

    kind: str
    name: str
    measures: dict[str, float]
    released: dict[str, int]
    released_without: dict[str, int]
    asked: dict[str, bool]


def row(kind: str, name: str, scene: SceneAssessment, policies: dict[str, Policy]) -> Row:
    """What is measured and decided about ``scene``."""
    found = scene.localization
    objects = scene.objects
    measures = {
        "scene_distance": math.nan if found is None else found.scene_distance,
        "novelty": math.nan if found is None else found.novelty,
        "unexplained_objectness": math.nan if found is None else found.unexplained_objectness,
        "object_novelty": max((thing.novelty for thing in objects), default=0.0),
        "doubt": 1.0 - max((thing.score for thing in objects), default=0.0),
    }
    released, without, asked = {}, {}, {}
    for policy_name, policy in policies.items():
        guarded, bare = judge(scene, policy), judge(scene, policy.model_copy(update=_OFF))
        released[policy_name], without[policy_name] = _releases(guarded), _releases(bare)
        asked[policy_name] = guarded.outcome is not bare.outcome or [v.verdict for v in guarded.verdicts] != [
            v.verdict for v in bare.verdicts
        ]
    return Row(kind, name, {k: round(float(v), 6) for k, v in measures.items()}, released, without, asked)


def _releases(decision: Any) -> int:
    if decision.outcome is not Outcome.WORK:
        return 0
    return sum(verdict.verdict is Verdict.REMOVE for verdict in decision.verdicts)


def measure(photographs: Path, laptops: int, first: int, cache: JsonStore, jobs: int) -> list[Row]:
    """A row per photograph in the folder, and per laptop of the seeds from ``first`` on."""
    settings = PerceptionSettings(device="cpu")
    policies = {name: Policy.load(_CONFIG / name) for name in POLICIES}
    seeds = [Recipe(seed) for seed in range(first, first + laptops)]
    rows = [
        row(FAMILIAR, record.name, record.assessment, policies)
        for record in records(seeds, settings, cache, jobs)
    ]
    perception = Perception(settings)
    for kind, name, image in load_photographs(photographs):
        key = f"photograph:{perception.settings_hash}:{kind}:{name}"
        if (plain := cache.get(key)) is None:
            plain = assessment_to_plain(perception.assess(image))
            cache.put({key: plain})
        rows.append(row(kind, name, assessment_from_plain(plain), policies))
    return rows


def table(rows: Sequence[Row], name: str) -> str:
    """``rows`` in Markdown: "releases" by kind, or how well each of the "measures" tells photographs from laptops."""
    return {"releases": releases_table, "measures": measures_table}[name](rows)


def releases_table(rows: Sequence[Row]) -> str:
    """What is released of each kind of pictures with and without the limits, in Markdown."""
    kinds = sorted({r.kind for r in rows} - {FAMILIAR})
    photographs = [r for r in rows if r.kind != FAMILIAR]
    laptops = [r for r in rows if r.kind == FAMILIAR]
    head = "| pictures | number |" + "".join(f" {name}: without | with |" for name in POLICIES)
    lines = [head, "|" + "---|" * (2 + 2 * len(POLICIES))]
    groups = [(kind, [r for r in photographs if r.kind == kind]) for kind in kinds]
    for title, members in [*groups, ("**all photographs**", photographs), ("rendered laptops", laptops)]:
        cells = (
            f" {_share(members, 'released_without', p)} | {_share(members, 'released', p)} |"
            for p in POLICIES
        )
        lines.append(f"| {title} | {len(members)} |" + "".join(cells))
    asked = (f" | {_asked(laptops, p)} |" for p in POLICIES)
    lines.append("| laptops asked about because of the limits | " + str(len(laptops)) + " |" + "".join(asked))
    return "\n".join(lines)


def measures_table(rows: Sequence[Row]) -> str:
    """How well each measure tells photographs from laptops, in Markdown."""
    lines = ["| measure | AUROC of photographs against laptops |", "|---|---|"]
    for name, title in MEASURES.items():
        laptops, photographs = (
            np.array([r.measures[name] for r in rows if (r.kind == FAMILIAR) is familiar])
            for familiar in (True, False)
        )
        lines.append(f"| {title} | {roc_interval(laptops, photographs)} |")
    return "\n".join(lines)


def _share(rows: Sequence[Row], field: str, policy: str) -> str:
    values = [getattr(r, field)[policy] for r in rows]
    return f"{sum(v > 0 for v in values)} ({sum(values)} objects)"


def _asked(rows: Sequence[Row], policy: str) -> str:
    asked = sum(r.asked[policy] for r in rows)
    low, high = clopper_pearson(asked, len(rows))
    return f"{asked} [{low:.1%}, {high:.1%}]"


def read(file: Path) -> list[Row]:
    """The rows in ``file``."""
    return [Row(**one) for one in json.loads(file.read_text(encoding="utf-8"))]


def main() -> None:
    """Measure, print the tables, and write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photographs", type=Path, required=True, help="folder of benchmarks.photographs")
    parser.add_argument("--laptops", type=int, default=400)
    parser.add_argument("--first", type=int, default=TEST)
    parser.add_argument("--cache", type=Path, default=Path("out/unfamiliar.sqlite"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=result_file)
    arguments = parser.parse_args()
    arguments.cache.parent.mkdir(parents=True, exist_ok=True)
    rows = measure(
        arguments.photographs, arguments.laptops, arguments.first, JsonStore(arguments.cache), arguments.jobs
    )
    print(releases_table(rows), measures_table(rows), sep="\n\n")
    if arguments.out is not None:
        lines: Iterable[str] = (json.dumps(asdict(r)) for r in rows)
        with atomic_write(arguments.out) as stream:
            stream.write(("[\n" + ",\n".join(lines) + "\n]\n").encode())


if __name__ == "__main__":
    main()
