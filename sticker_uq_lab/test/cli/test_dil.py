# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dil learn``: what a novelty network starts from, and what to do when it is too weak."""

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import sticker_uq_lab.cli.dil as command
from sticker_uq.cli import app
from sticker_uq.perception.novelty.network import packaged_file, read_network
from sticker_uq.perception.novelty.quality import Auroc, NoveltyQuality


@pytest.mark.parametrize("weak_part", ["objects", "scenes"])
@pytest.mark.parametrize(
    ("start", "remedy"), [(["--start", "packaged"], "Learn from more pictures"), ([], "--start packaged")]
)
def test_a_network_starts_as_told_and_a_weak_one_says_what_to_do(
    monkeypatch, tmp_path, start, remedy, weak_part
):
    """Learning itself, which takes minutes, is replaced by what it is given."""
    begun = []
    areas = {"objects": Auroc(0.9, 0.9, 0.9), "scenes": Auroc(0.9, 0.9, 0.9), weak_part: Auroc(0.7, 0.6, 0.8)}
    weak = NoveltyQuality(**areas, pictures=10)

    def learn(detector: object, pictures: object, begin: object, *_: object) -> SimpleNamespace:
        begun.append(begin)
        return SimpleNamespace(quality=weak)

    monkeypatch.setattr(command, "read_coco", lambda data: [SimpleNamespace(labels=[1])])
    monkeypatch.setattr(command, "learn_novelty_network", learn)
    monkeypatch.setattr(command, "save_network", lambda *_: None)
    out = str(tmp_path / "mine_novelty.safetensors")
    ran = CliRunner().invoke(app, ["dil", "learn", "--data", "pictures", "--out", out, *start])
    assert ran.exit_code == 0, ran.output
    if weak_part == "scenes":
        assert f"TOO WEAK, perception will not use it: {weak.weakness}. " in ran.output
    else:
        assert f"use it for whole scenes only: {weak.objects_weakness}. " in ran.output
    assert remedy in ran.output.split("TOO WEAK")[1]
    if not start:
        assert begun == [None]
        return
    file = packaged_file("ssdlite320_mobilenet_v3_large")
    assert file is not None
    packaged = read_network(file).state_dict()
    assert all((value == packaged[name]).all() for name, value in begun[0].state_dict().items())
