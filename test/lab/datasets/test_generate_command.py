# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset generate`` with every generator: keys, limits, interruptions, bad options."""

import json
import logging
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from sticker_uq.cli.dataset import app
from sticker_uq.lab.datasets.generators import CAMERA_SIZE
from sticker_uq.lab.datasets.prompts import write_prompts
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.scene import InvalidInput
from test.helpers.image_service import KEY, openai_answer, prompts, stability_answer


def run(tmp_path, *arguments, count=2):
    write_prompts(tmp_path / "p.jsonl", prompts(count))
    given = [
        "generate",
        "--prompts",
        str(tmp_path / "p.jsonl"),
        "--out",
        str(tmp_path / "out"),
        *map(str, arguments),
    ]
    return CliRunner().invoke(app, given)


def test_the_key_appears_nowhere(tmp_path, service, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "\n")
    echo = (500, {"error": {"code": "server_error", "message": f"bad {KEY}"}}, {"Retry-After": "0"})
    service.answers = [echo, openai_answer()]
    result = run(
        tmp_path, "--generator", "openai", "--base-url", service.url, "--price", 0.04, "--max-cost", 1
    )
    assert result.exit_code == 0, result.output
    assert "2 pictures" in result.output
    assert "cost at most 0.08" in result.output
    assert service.requests[0][1]["Authorization"] == f"Bearer {KEY}"
    manifest = (tmp_path / "out" / "manifest.jsonl").read_text()
    assert "bad ***" in manifest
    assert KEY not in manifest + caplog.text + result.output


def test_the_renderer_always_works_and_follows_seed_and_number(tmp_path):
    result = run(tmp_path, count=1)
    assert result.exit_code == 0, result.output
    made = np.asarray(Image.open(tmp_path / "out" / "images" / "00000.png"))[..., ::-1]
    np.testing.assert_array_equal(made, render(sample_scene(100, stickers=1), CAMERA_SIZE).image)


def test_a_killed_command_goes_on_where_it_was(tmp_path, service, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    service.answers = [openai_answer(), None]
    options = ("--generator", "openai", "--base-url", service.url, "--price", 1)
    write_prompts(tmp_path / "p.jsonl", prompts(3))
    files = ("--prompts", tmp_path / "p.jsonl", "--out", tmp_path / "out")
    command = [sys.executable, "-m", "sticker_uq.cli", "dataset", "generate", *map(str, (*files, *options))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert service.silent.wait(60)
        process.kill()
    service.answers = [openai_answer()]
    result = run(tmp_path, *options, count=3)
    assert result.exit_code == 0, result.output
    assert "3 pictures" in result.output
    assert "cost at most 4.00" in result.output
    asked = [json.loads(body)["prompt"][-1] for _, _, body in service.requests]
    assert asked == ["0", "1", "1", "2"]


def test_failed_prompts_are_an_exit_status(tmp_path, service, monkeypatch):
    monkeypatch.setenv("STABILITY_API_KEY", KEY)
    service.answers = [(500, b"", {}), stability_answer()]
    result = run(tmp_path, "--generator", "stability", "--base-url", service.url, "--attempts", 1)
    assert result.exit_code == 1
    assert "1 pictures" in result.output
    assert "1 failed" in result.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--generator", "openai"), "OPENAI_API_KEY"),
        (("--generator", "stability"), "STABILITY_API_KEY"),
        (("--generator", "midjourney"), "expected rendered, openai"),
        (("--max-cost", 1), "--price"),
        (("--count", 0), "--count 0"),
        (("--attempts", 0), "--attempts 0"),
        (("--timeout", 0), "--timeout"),
        (("--price", -1), "--price"),
        (("--base-url", "https://x"), "--base-url"),
        (("--model", "x"), "--model x"),
    ],
)
def test_bad_options_are_named_and_write_nothing(tmp_path, monkeypatch, arguments, named):
    for name in ("OPENAI_API_KEY", "STABILITY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    result = run(tmp_path, *arguments)
    assert isinstance(result.exception, InvalidInput)
    assert named in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_diffusers_says_how_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    result = run(tmp_path, "--generator", "diffusers")
    assert isinstance(result.exception, InvalidInput)
    assert "pip install diffusers" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_diffusers_gets_prompt_and_seed(tmp_path, monkeypatch):
    asked = []

    class Pipeline:
        @classmethod
        def from_pretrained(cls, model, torch_dtype):
            if model == "missing":
                raise OSError("no such model")
            return cls()

        def to(self, device):
            return self

        def set_progress_bar_config(self, disable):
            pass

        def __call__(self, prompt, width, height, generator):
            asked.append((prompt, generator.initial_seed()))
            return SimpleNamespace(images=[Image.new("RGB", (width, height))])

    monkeypatch.setitem(sys.modules, "diffusers", SimpleNamespace(DiffusionPipeline=Pipeline))
    assert run(tmp_path, "--generator", "diffusers").exit_code == 0
    assert asked == [(prompt.prompt, prompt.seed) for prompt in prompts(2)]
    result = run(tmp_path, "--generator", "diffusers", "--model", "missing")
    assert "no such model" in str(result.exception)
