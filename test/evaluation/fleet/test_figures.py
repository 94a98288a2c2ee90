# SPDX-License-Identifier: Apache-2.0
"""Figures of a scripted fleet in which it is known who asks more, whose scenes drift, and what blocks."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import cv2
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sticker_uq.evaluation.fleet import recordings as fleet_recordings
from sticker_uq.evaluation.fleet.cells import recordings_of
from sticker_uq.evaluation.fleet.figures import as_plain, read_fleet
from sticker_uq.evaluation.fleet.recordings import FleetPlan, replay_recording, write_index
from sticker_uq.evaluation.reporting.fleet_report import fleet_report
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.assumptions.drift import Reference
from sticker_uq.io.sources import open_source
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, Outcome
from sticker_uq.testing.scripted_detector import ScriptedPerception, Seen

SETTINGS = PerceptionSettings(device="cpu")
ASKED = {"alpha": 4, "beta": 5, "gamma": 30, "delta": 4}
"""Laptops of each cell, of 40, in which the only sticker is uncertain."""
LAPTOPS, BRIGHT_FROM = 40, 20


def pictures(folder, seed, asked, bright_from=LAPTOPS):
    """One picture per laptop: noise, of which the first pixel says what is seen; brighter from one of them on."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    unsure = set(rng.permutation(LAPTOPS)[:asked].tolist())
    for number in range(LAPTOPS):
        level = 150 if number >= bright_from else 80
        picture = rng.integers(level, level + 60, (24, 32, 3)).astype(np.uint8)
        picture[0, 0] = Seen.UNSURE if number in unsure else Seen.STICKER
        cv2.imwrite(str(folder / f"{number}.png"), picture)
    return folder


@pytest.fixture(scope="module")
def scripted():
    """Perception that the first pixel of a picture scripts, in the place of the real one."""
    patch = pytest.MonkeyPatch()
    patch.setattr(fleet_recordings, "same_perception", lambda *_: ScriptedPerception(SETTINGS))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, scripted):
    """The Parquet files of four cells: gamma asks about most of its laptops, delta gets brighter after half of them."""
    root = tmp_path_factory.mktemp("scripted")
    paths = [
        pictures(root / cell / "r", seed, asked, BRIGHT_FROM if cell == "delta" else LAPTOPS)
        for seed, (cell, asked) in enumerate(ASKED.items())
    ]
    perception = ScriptedPerception(SETTINGS)
    usual = [
        perception.assess(item.image, item.stamp_ns)
        for item in open_source(pictures(root / "reference", 99, 4))
    ]
    policy = Policy(reference=Reference.of(usual))
    plan = FleetPlan(SETTINGS, "scripted", policy, root / "out")
    write_index([replay_recording(one, plan) for one in recordings_of(paths)], plan)
    return root / "out"


def test_the_cell_that_asks_more_is_found_and_no_other(folder):
    fleet = read_fleet(folder)
    assert {cell.cell: cell.asked for cell in fleet.cells} == ASKED
    assert fleet.whole.asked == sum(ASKED.values())
    gamma = next(cell for cell in fleet.cells if cell.cell == "gamma")
    # all others ask less than a fleet of which a quarter is gamma
    assert fleet.differing()[0] is gamma
    assert fleet.asks_more(gamma)
    assert not any(fleet.asks_more(cell) for cell in fleet.cells if cell is not gamma)
    low, high = stats.binomtest(30, LAPTOPS).proportion_ci(0.95, "exact")
    assert (gamma.per_100.value, gamma.per_100.low, gamma.per_100.high) == pytest.approx(
        (75, 100 * low, 100 * high)
    )
    assert gamma.p == pytest.approx(stats.fisher_exact([[30, 10], [13, 107]]).pvalue)
    raw = [cell.p for cell in fleet.cells]
    harmonic = sum(1 / n for n in range(1, 5))
    assert gamma.adjusted == pytest.approx(min(raw) * len(raw) * harmonic)


def test_cells_that_do_not_differ_are_not_said_to(folder, scripted, tmp_path):
    paths = [pictures(tmp_path / cell / "r", seed, 5) for seed, cell in enumerate(("a", "b", "c"))]
    plan = FleetPlan(SETTINGS, "scripted", Policy(), tmp_path / "out")
    write_index([replay_recording(one, plan) for one in recordings_of(paths)], plan)
    fleet = read_fleet(tmp_path / "out")
    assert fleet.differing() == []
    assert all(cell.adjusted == 1.0 for cell in fleet.cells)
    assert "No cell is found to ask more or less" in fleet_report(fleet)
    assert all(cell.drift.evidence == () for cell in fleet.cells), (
        "a policy without reference watches nothing"
    )


def test_drift_is_what_the_monitor_of_the_cell_says(folder):
    fleet = read_fleet(folder)
    drift = {cell.cell: cell.drift for cell in fleet.cells}
    assert [name for name, one in drift.items() if one.alarm_at] == ["delta"]
    found = drift["delta"]
    assert BRIGHT_FROM < found.alarm_at <= LAPTOPS
    assert found.reason == "mean_level"
    assert found.stamp_ns == found.alarm_at - 1  # pictures are numbered from 0
    assert len(found.evidence) == found.alarm_at
    assert found.evidence[-1] >= 1.0
    assert max(found.evidence[:-1]) < 1.0
    assert len(drift["alpha"].evidence) == LAPTOPS
    assert sum(one > other for other, one in pairwise(found.evidence[BRIGHT_FROM:])) > 5
    later = read_fleet(folder, false_alarm=1e-6).cells[2].drift
    assert later.alarm_at == 0 or later.alarm_at > found.alarm_at


def test_limits_are_counted_by_laptop(folder):
    fleet = read_fleet(folder)
    gamma = next(cell for cell in fleet.cells if cell.cell == "gamma")
    assert gamma.blocked["Shannon entropy"] == 30
    scene = ScriptedPerception(SETTINGS).assess(np.full((24, 32, 3), Seen.UNSURE, np.uint8))
    assert judge(scene, fleet.policy).outcome is Outcome.ASK
    assert gamma.released == LAPTOPS - 30
    assert "Shannon entropy: 30 (75%)" in fleet_report(fleet)


def test_figures_are_json_and_the_page_names_who_differs(folder):
    fleet = read_fleet(folder)
    plain = json.loads(json.dumps(as_plain(fleet), allow_nan=False))
    differing = {cell["cell"] for cell in plain["cells"] if cell["differs"]}
    assert "gamma" in differing
    assert differing == {cell.cell for cell in fleet.differing()}
    assert plain["fleet"]["adjusted"] is None
    page = fleet_report(fleet)
    assert "gamma asks more" in page
    assert "Drift alarm: delta." in page
    assert page.count("<svg") == 4  # no gate was recorded


def test_recordings_are_taken_in_the_order_of_time_for_drift(folder, scripted, tmp_path):
    """Two recordings of one cell: whichever is named first, the earlier one is seen first."""
    paths = [tmp_path / "c" / name for name in ("a", "b")]
    pictures(paths[0], 1, 4, 0)  # bright: drift
    pictures(paths[1], 2, 4)
    for kept in paths[0].iterdir():
        kept.rename(kept.with_name(f"9{kept.name}"))
    policy = read_fleet(folder).policy
    plan = FleetPlan(SETTINGS, "scripted", policy, tmp_path / "out")
    rows = [replay_recording(one, plan) for one in recordings_of(paths)]
    # a folder's stamps are numbers of its pictures: later ones make the first recording the later one
    file = plan.out / "judgements" / rows[0]["judgements"]
    table = pd.read_parquet(file)
    table["stamp_ns"] += 10**9
    table.to_parquet(file)
    write_index(rows, plan)
    (cell,) = read_fleet(plan.out).cells
    assert cell.drift.alarm_at > LAPTOPS
    assert cell.drift.recording == str(paths[0])


def test_a_fleet_of_which_nothing_was_judged_is_refused(scripted, tmp_path):
    plan = FleetPlan(SETTINGS, "scripted", Policy(), tmp_path / "out")
    plan.out.mkdir()
    rows = [replay_recording(one, plan) for one in recordings_of([tmp_path / "none"])]
    assert "no such file" in rows[0]["error"]
    write_index(rows, plan)
    with pytest.raises(InvalidInput, match="none of its 1 recordings could be judged"):
        read_fleet(plan.out)


def test_without_scene_distance_nothing_is_said_of_it(folder):
    fleet = read_fleet(folder)
    assert all(cell.distance[0] <= cell.distance[1] for cell in fleet.cells)
    unmeasured = [replace(cell, distance=(math.nan,) * 3) for cell in fleet.cells]
    assert "images above the limit" in fleet_report(fleet)
    assert "The scene distance was not measured" in fleet_report(replace(fleet, cells=tuple(unmeasured)))
