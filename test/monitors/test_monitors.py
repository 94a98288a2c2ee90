# SPDX-License-Identifier: Apache-2.0
"""What holds for every monitor: fit, score, save, load, refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.monitors import (
    MODERN,
    MONITORS,
    PAPER,
    Objects,
    concatenate,
    load_monitor,
    measure_cost,
    monitor_named,
    save_monitor,
)
from sticker_uq.scene import InvalidInput
from test.monitors.conftest import make_objects

QUICK = {"autoencoder": {"steps": 60, "hidden": 16}}


def new(name: str):
    return monitor_named(name, **QUICK.get(name, {}))


def test_the_sixteen_and_their_company() -> None:
    assert len(PAPER) == 16
    assert {kind.name for kind in MODERN} == {"relative_mahalanobis", "energy", "knn", "vim"}
    assert len(MONITORS) == 20


@pytest.mark.parametrize("name", MONITORS)
def test_what_was_saved_scores_the_same(name: str, usual: Objects, tmp_path: Path) -> None:
    others = make_objects(2, 40)
    monitor = new(name).fit(usual)
    scores = monitor.score(others)
    assert scores.shape == (40,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    cost = measure_cost(monitor, others)
    path = save_monitor(monitor, tmp_path, {"objects": len(usual)})
    again = load_monitor(tmp_path, name)
    assert again.score(others).tolist() == scores.tolist()
    assert again.cost_ms == cost > 0
    described = json.loads(path.read_text())
    assert described["name"] == name
    assert described["needs"] == list(monitor.needs)
    assert described["about"] == {"objects": 120}


@pytest.mark.parametrize("name", MONITORS)
def test_objects_score_alone_as_among_others(name: str, usual: Objects) -> None:
    monitor, others = new(name).fit(usual), make_objects(3, 12)
    together = monitor.score(others)
    alone = np.concatenate([monitor.score(others[row : row + 1]) for row in range(12)])
    assert alone == pytest.approx(together, rel=1e-6, abs=1e-9)
    assert monitor.score(others[:0]).shape == (0,)


@pytest.mark.parametrize("name", [n for n in MONITORS if "features" in MONITORS[n].needs])
def test_the_unusual_scores_higher(name: str, usual: Objects) -> None:
    monitor = new(name).fit(usual)
    novel = replace(usual, features=usual.features[:, ::-1] * 3, logits=np.zeros_like(usual.logits))
    assert np.median(monitor.score(novel)) > np.quantile(monitor.score(make_objects(4)), 0.9)


def test_the_autoencoder_cannot_draw_what_it_has_not_seen(usual: Objects) -> None:
    monitor = monitor_named("autoencoder", steps=600, hidden=32).fit(usual)
    novel = replace(usual, crops=1 - usual.crops)
    assert monitor.score(novel).min() > monitor.score(make_objects(4)).max()
    with pytest.raises(InvalidInput, match="crops have shape"):
        monitor.score(replace(usual, crops=usual.crops[..., :2]))
    with pytest.raises(InvalidInput, match="expected 0 to 1"):
        monitor.fit(replace(usual, crops=usual.crops * 255))


def test_fitting_is_repeatable(usual: Objects) -> None:
    one, other = (new("autoencoder").fit(usual).score(usual) for _ in range(2))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("name", MONITORS)
def test_a_field_that_is_missing_is_named(name: str, usual: Objects) -> None:
    bare = Objects(usual.probabilities)
    wanted = [need for need in MONITORS[name].needs if need != "probabilities"]
    if not wanted:
        assert len(new(name).score(bare)) == len(bare)
        return
    with pytest.raises(InvalidInput, match=f"{name} needs .*{wanted[0]}"):
        new(name).fit(bare)


@pytest.mark.parametrize("name", [n for n in MONITORS if MONITORS[n].learns])
def test_what_learns_must_be_fitted(name: str, usual: Objects) -> None:
    with pytest.raises(InvalidInput, match="not fitted"):
        new(name).score(usual)
    with pytest.raises(InvalidInput, match="no objects"):
        new(name).fit(usual[:0])


def test_files_that_do_not_belong_together_are_refused(usual: Objects, tmp_path: Path) -> None:
    path = save_monitor(new("knn").fit(usual), tmp_path)
    with pytest.raises(InvalidInput, match=r"mdsa.json: no such file; fitted there: knn"):
        load_monitor(tmp_path, "mdsa")
    data = path.with_suffix(".safetensors")
    data.write_bytes(data.read_bytes()[:-8] + b"\0" * 8)
    with pytest.raises(InvalidInput, match="checksum"):
        load_monitor(tmp_path, "knn")
    data.unlink()
    with pytest.raises(InvalidInput, match="no such file"):
        load_monitor(tmp_path, "knn")
    path.write_text("{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        load_monitor(tmp_path, "knn")
    path.write_text(json.dumps({"format": 9}))
    with pytest.raises(InvalidInput, match="format"):
        load_monitor(tmp_path, "knn")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="did you mean mdsa"):
        monitor_named("mdsaa")


def test_objects_can_be_joined_and_chosen(usual: Objects) -> None:
    joined = concatenate([usual, replace(usual, crops=None)])
    assert len(joined) == 240
    assert joined.crops is None
    assert joined.samples.shape == (8, 240, 3)
    assert joined[120:].layers[1].tolist() == usual.layers[1].tolist()
    with pytest.raises(InvalidInput, match="at least one"):
        concatenate([])
