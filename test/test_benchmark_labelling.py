# SPDX-License-Identifier: Apache-2.0
"""The benchmark of labels saved: it runs from pictures to a result, its curves say what they should, the page what it found."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import labelling
from benchmarks.labelling_measure import (
    RANDOM,
    SUGGEST,
    Bench,
    Pool,
    Sizes,
    choose,
    curves,
    detections,
    equivalent,
    plain,
)
from benchmarks.tables import ROOT
from sticker_uq.io.coco import read_coco, write_coco
from sticker_uq.io.json_store import JsonStore
from sticker_uq.lab.datasets.suggesting import PoolPicture
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.lab.training import training
from sticker_uq.scene import Detections

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("value", "labels"),
    [(0.4, 0.0), (0.5, 0.0), (0.55, 5.0), (0.6, 10.0), (0.7, 25.0), (0.8, 40.0), (0.81, math.inf)],
)
def test_random_labels_of_the_same_worth_are_read_off_the_curve(value: float, labels: float) -> None:
    assert equivalent(value, (0, 10, 40), (0.5, 0.6, 0.8)) == pytest.approx(labels)


def test_a_dip_of_the_curve_is_chance() -> None:
    assert equivalent(0.7, (0, 10, 20, 40), (0.5, 0.72, 0.68, 0.8)) == pytest.approx(10.0)
    assert equivalent(0.7, (0, 10), (0.7, 0.6)) == math.inf


def pictures(*values: tuple[float, float]) -> list[PoolPicture]:
    return [PoolPicture(str(n), {"shannon_entropy": s}, np.array([at])) for n, (s, at) in enumerate(values)]


def test_the_halves_of_suggest_by_themselves() -> None:
    pool = pictures((0.1, 90.0), (0.2, 50.0), (0.9, 1.0), (0.8, 1.1), (0.7, 1.2), (0.6, 1.3))
    by_score = [one.picture.name for one in choose("score", pool, 2, [np.array([0.0])])]
    by_distance = [one.picture.name for one in choose("distance", pool, 2, [np.array([0.0])])]
    assert (by_score, by_distance) == (["2", "3"], ["0", "1"])


def test_what_was_found_is_kept_whole() -> None:
    found = Detections(np.array([[1, 2, 30, 40]], np.float32), np.array([[0.125, 0.25, 0.625]], np.float32))
    again = detections(json.loads(json.dumps(plain(found))))
    np.testing.assert_allclose(again.boxes, found.boxes)
    np.testing.assert_allclose(again.probabilities, found.probabilities, atol=1e-6)
    assert len(detections([])) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A COCO folder of eight laptops with one sticker each."""
    out = tmp_path_factory.mktemp("pool") / "laptops"
    scenes = [encode_scene(seed, render(sample_scene(seed, stickers=1), (240, 180))) for seed in range(8)]
    write_coco(out, scenes)
    return out


def seen(folder: Path, right: int) -> list[list[list[float]]]:
    """Detections that are the objects of the first ``right`` pictures."""
    found = []
    for number, item in enumerate(read_coco(folder)):
        rows = zip(item.boxes.tolist(), item.labels.tolist(), strict=True)
        found.append(
            [[*box, *((0.9, 0.0) if label == 1 else (0.0, 0.9))] for box, label in rows if number < right]
        )
    return found


def test_a_choice_that_is_worth_twice_as_many_labels_saves_half(folder: Path, tmp_path: Path) -> None:
    sizes = Sizes(budgets=(10, 20), further=(40,), test=8)
    pool = Pool("fake", "a pool", ((folder, 1.0),), folder, folder)
    right = {(RANDOM, 0): 0, (RANDOM, 10): 2, (RANDOM, 20): 4, (RANDOM, 40): 8, (SUGGEST, 10): 4, (SUGGEST, 20): 8}  # fmt: skip
    with JsonStore(tmp_path / "kept.sqlite") as kept:
        bench = Bench(tmp_path, sizes, kept)
        for (method, labels), count in right.items():
            names = [f"{folder.name}/{item.path.name}" for item in read_coco(folder)][:labels]
            for seed in range(3):
                kept.put(
                    {
                        bench.key(pool, seed, method, labels): {
                            "chosen": names,
                            "found": seen(folder, count),
                        }
                    }
                )
        found = curves(bench, pool, range(3), (RANDOM, SUGGEST), 60)
    points = {(one["method"], one["labels"]): one for one in found["points"]}
    assert points[RANDOM, 40]["map"][0] == pytest.approx(1.0)
    for labels in (10, 20):
        one = points[SUGGEST, labels]
        value, low, high = one["saved"]
        assert value == pytest.approx(labels, abs=0.01)
        assert low <= value <= high <= found["most"] - labels
        assert one["minus_random"][0] == pytest.approx(
            points[RANDOM, 2 * labels]["map"][0] - points[RANDOM, labels]["map"][0], abs=1e-3
        )
        # the same pictures are drawn for both choices: some resamples show both nothing, none turns the order round
        assert one["minus_random"][1] >= 0
    assert "| a pool | 20 |" in labelling.table({"sets": [found]}, "saved")
    assert "at least 20 (" in labelling.table({"sets": [found]}, "saved")


def test_the_rare_pictures_of_a_choice_are_counted(folder: Path, tmp_path: Path) -> None:
    rare = Path(shutil.copytree(folder, tmp_path / "new"))
    pool = Pool("fake", "a pool", ((folder, 0.5), (rare, 0.5)), folder, folder, rare=rare)
    with JsonStore(tmp_path / "kept.sqlite") as kept:
        for part, doubt in ((folder, 0.1), (rare, 0.9)):
            for number, item in enumerate(read_coco(part)):
                value = {"signals": {"shannon_entropy": doubt + 0.001 * number}, "features": [float(number)]}
                kept.put({f"measured::20:{part.name}/{item.path.name}:{item.path}": value})
        bench = Bench(tmp_path, Sizes(pool=12, start=1), kept)
        rows = bench.rare_found(pool, range(3), (3,))
    found = {row["method"]: row["rare"] for row in rows}
    assert found["score"] == [3.0, 3, 3]  # the surest of them is less sure than any other
    assert found[RANDOM][0] < 3
    table = labelling.table({"sets": [{"rare_found": rows}]}, "rare")
    assert "| highest score | 3.0 (3 to 3) |" in table


def test_the_page_begins_with_what_was_measured() -> None:
    """Also whether anything is saved: "saves" only where the interval lies above nothing."""
    found = labelling.read(ROOT / "benchmarks/results/labelling.json")
    page = " ".join((ROOT / "docs/results/labelling.md").read_text(encoding="utf-8").split())
    for one in found["sets"]:
        (point,) = (point for point in one["points"] if point["method"] == SUGGEST)
        value, low, high = (f"{v:.0f}" for v in point["saved"])
        end = "at least " if point["saved"][2] >= one["most"] - point["labels"] else ""
        said = f"{value} random labels ({low} to {end}{high})"
        verb = "saves" if point["saved"][1] > 0 else "saves nothing that could be shown:"
        assert f"on {one['title']} it {verb} {said}" in page


TINY = {
    "data": ["alike"], "seeds": [1], "pool": [4], "start": [2], "test": [2], "budgets": [2], "further": [], "steps": [1],
    "batch": [2], "passes": [2], "resamples": [5],
}  # fmt: skip


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, **values: list[object]) -> int:
    options = [str(part) for name, given in (TINY | values).items() for part in (f"--{name}", *given)]
    places = ["--work", folder / "work", "--out", folder / "result.json", "--figure", folder / "chart.svg"]
    monkeypatch.setattr("sys.argv", ["labelling", *map(str, places), *options])
    return labelling.main()


def test_it_runs_from_pictures_to_a_figure_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, tmp_path) == 0
    found = labelling.read(tmp_path / "result.json")
    (one,) = found["sets"]
    assert [(point["method"], point["labels"]) for point in one["points"]] == [
        (RANDOM, 0), (RANDOM, 2), (SUGGEST, 2),
    ]  # fmt: skip
    assert (one["test"], one["most"], found["seeds"]) == (2, 2, [0])
    assert all(0 <= point["map"][0] <= 1 for point in one["points"])
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")

    def nothing(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(training.Training, "run", nothing)
    before = (tmp_path / "result.json").read_text()
    assert run(monkeypatch, tmp_path) == 0
    assert (tmp_path / "result.json").read_text() == before
    with pytest.raises(AssertionError, match="trained again"):
        run(monkeypatch, tmp_path, seeds=[2])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"data": ["fruit"]}, "--data fruit: expected rare, alike or one of cells, cards"),
        ({"steps": [0]}, "--steps 0: Input should be greater than or equal to 1"),
    ],
)
def test_bad_options_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    values: dict[str, list[object]],
    said: str,
) -> None:
    assert run(monkeypatch, tmp_path, **values) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "result.json").exists()
