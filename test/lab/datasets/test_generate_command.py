# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset generate`` with every generator: keys, interruptions, failures, bad options."""

import json
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
from PIL import Image
from typer.testing import CliRunner

from sticker_uq.cli.dataset import app
from sticker_uq.lab.datasets import image_services
from sticker_uq.lab.datasets.prompts import write_prompts
from sticker_uq.scene import InvalidInput
from test.helpers.image_service import KEY, REFUSAL, openai_answer, prompts, stability_answer


def run(tmp_path, *arguments, count=2):
    tmp_path.mkdir(exist_ok=True)
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


@pytest.fixture
def quick(monkeypatch):
    """Attempts follow each other at once."""
    monkeypatch.setattr(image_services, "_FIRST_WAIT_S", 0.0)


def made(tmp_path):
    return sorted(path.name for path in (tmp_path / "out" / "images").iterdir())


def test_the_key_appears_nowhere(tmp_path, service, monkeypatch, caplog, quick):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "\n")
    echo = (500, {"error": {"code": "server_error", "message": f"bad {KEY}"}}, {})
    service.answers = [echo, openai_answer()]
    options = ("--generator", "openai", "--base-url", service.url)
    result = run(tmp_path, *options)
    assert result.exit_code == 0, result.output
    assert "2 pictures" in result.output
    assert made(tmp_path) == ["00000.png", "00001.png"]
    assert [json.loads(body)["prompt"][-1] for _, _, body in service.requests] == ["0", "0", "1"]
    assert service.requests[0][1]["Authorization"] == f"Bearer {KEY}"
    service.answers = [echo]
    result = run(tmp_path / "other", *options)
    assert "bad ***, 5 times" in str(result.exception)
    assert KEY not in caplog.text + result.output + str(result.exception)


def test_a_killed_command_goes_on_where_it_was(tmp_path, service, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    service.answers = [openai_answer(), None]
    options = ("--generator", "openai", "--base-url", service.url)
    write_prompts(tmp_path / "p.jsonl", prompts(3))
    files = ("--prompts", tmp_path / "p.jsonl", "--out", tmp_path / "out")
    command = [sys.executable, "-m", "sticker_uq.cli", "dataset", "generate", *map(str, (*files, *options))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert service.silent.wait(60)
        process.kill()
    service.answers = [openai_answer()]
    assert run(tmp_path, *options, "--count", 2, count=3).exit_code == 0
    assert run(tmp_path, *options, count=3).exit_code == 0
    asked = [json.loads(body)["prompt"][-1] for _, _, body in service.requests]
    assert asked == ["0", "1", "1", "2"]
    assert "other prompts" in str(run(tmp_path, *options, count=4).exception)


def test_stability_gets_text_and_seed_and_what_is_refused_is_counted(tmp_path, service, monkeypatch):
    monkeypatch.setenv("STABILITY_API_KEY", KEY)
    service.answers = [stability_answer(), stability_answer(reason="CONTENT_FILTERED"), REFUSAL]
    result = run(tmp_path, "--generator", "stability", "--base-url", service.url, count=3)
    assert result.exit_code == 0, result.output
    assert "1 pictures" in result.output
    assert "2 prompts refused" in result.output
    path, _, body = service.requests[0]
    assert path == "/v2beta/stable-image/generate/sd3"
    assert b"a laptop, number 0" in body
    assert b"\r\n101\r\n" in body


@pytest.mark.parametrize(
    ("answer", "message", "requests"),
    [
        ((401, {"error": {"code": "invalid_api_key", "message": "no"}}, {}), "HTTP 401: invalid_api_key", 1),
        ((429, {"error": {"code": "insufficient_quota", "message": "no"}}, {}), "insufficient_quota", 1),
        ((429, {"error": {"code": "rate_limit", "message": "slowly"}}, {}), "slowly, 5 times", 5),
        ((200, b"[]", {}), "no JSON object", 1),
        (openai_answer(b"text"), "corrupt picture of 4 bytes", 1),
        ((200, {"data": [{}]}, {}), "no picture in base64", 1),
    ],
)
def test_what_the_service_does_wrong_is_said(
    tmp_path, service, monkeypatch, quick, answer, message, requests
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    service.answers = [answer]
    result = run(tmp_path, "--generator", "openai", "--base-url", service.url)
    assert isinstance(result.exception, InvalidInput)
    assert message in str(result.exception)
    assert len(service.requests) == requests
    assert made(tmp_path) == []


@pytest.mark.parametrize(
    "url", ["http://example.com", "https://user@example.com", "nowhere", "ftp://localhost"]
)
def test_a_key_goes_to_no_other_machine_in_the_clear(url):
    with pytest.raises(InvalidInput, match="base URL"):
        image_services.Service(url, KEY)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--generator", "openai"), "OPENAI_API_KEY"),
        (("--generator", "stability"), "STABILITY_API_KEY"),
        (("--generator", "midjourney"), "expected openai, stability, diffusers"),
        (("--generator", "openai", "--count", 0), "--count 0"),
        (("--generator", "openai", "--timeout", 0), "--timeout"),
        (("--generator", "diffusers", "--base-url", "https://x"), "--base-url"),
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
