# SPDX-License-Identifier: Apache-2.0
from typer.testing import CliRunner

from sticker_uq.io.coco import read_coco
from sticker_uq_lab.cli.dataset import app
from sticker_uq_lab.rendering import render, sample_scene


def run(*arguments):
    return CliRunner().invoke(app, ["render", *(str(argument) for argument in arguments)])


def test_scene_i_has_seed_plus_i_whatever_the_number_of_processes(tmp_path):
    options = ["--count", "5", "--seed", "40", "--size", "128x96", "--format", "png"]
    alone = run("--out", tmp_path / "a", *options)
    shared = run("--out", tmp_path / "b", *options, "--jobs", 2)
    assert alone.exit_code == shared.exit_code == 0, (alone.output, shared.output)
    files = [sorted((tmp_path / name / "images").iterdir()) for name in "ab"]
    assert [path.name for path in files[0]] == [f"{seed:08d}.png" for seed in range(40, 45)]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]
    boxes = [image.boxes.tolist() for image in read_coco(tmp_path / "a")]
    assert boxes == [
        render(sample_scene(seed, profile="study"), (128, 96)).boxes.tolist() for seed in range(40, 45)
    ]


def test_number_of_stickers_stays_in_its_range(tmp_path):
    result = run("--out", tmp_path / "a", "--count", 4, "--size", "128x96", "--stickers", "0-1")
    assert result.exit_code == 0, result.output
    assert {int((image.labels == 2).sum()) for image in read_coco(tmp_path / "a")} == {0, 1}
