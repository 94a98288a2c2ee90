# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq train``: what it shows, and how it ends."""

from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

import sticker_uq_lab.cli.train as command
from lab_helpers.scenes import rendered
from sticker_uq.cli import app
from sticker_uq.cli.terminal import output
from sticker_uq.detection import load_weights
from sticker_uq.io.coco import read_coco


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    return rendered(tmp_path / "scenes", range(4), (240, 180), stickers=2)


def test_it_trains_and_says_where_the_weights_are(scenes, tmp_path):
    out = tmp_path / "out"
    options = (
        f"train --data {scenes} --out {out} --epochs 1 --batch-size 2 --start random --threads 1".split()
    )
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "first step of 2 images: " in result.output
    assert "epoch 1: loss" in result.output
    assert load_weights(out / "best.safetensors")[1]["data"]["images"] == 3  # the fourth is to validate on
    again = CliRunner().invoke(app, options)
    assert again.exit_code == 2
    assert "exists already" in again.output


def test_packaged_exposure_is_rendered_once_and_trained_on(scenes, tmp_path, monkeypatch):
    out, trained = tmp_path / "out", []
    monkeypatch.setattr(command, "_PICTURES", 2)
    monkeypatch.setattr(command, "train", lambda settings, **_: trained.append(settings) or True)
    own = tmp_path / "own"
    options = ["--data", str(scenes), "--out", str(out), "--exposure", "packaged", "--exposure", str(own)]
    first, second = (CliRunner().invoke(app, ["train", *options]) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    assert "rendering 2 pictures of what must not be peeled" in first.output
    assert "rendering" not in second.output
    assert [settings.exposure for settings in trained] == [(out / "exposure", own)] * 2
    assert len(read_coco(out / "exposure")) == 2


def test_a_redirected_table_is_not_cut(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table(*(f"column number {n}" for n in range(10)))
    output().print(table)
    shown = capsys.readouterr().out
    assert all(f"column number {n}" in shown for n in range(10))
