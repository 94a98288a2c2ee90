"""Generators against a server on this machine that speaks the services' APIs."""

import base64
import io
import json
import logging
import subprocess
import sys
import threading
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from sticker_uq.cli.dataset import app
from sticker_uq.datasets import render, sample_scene
from sticker_uq.datasets.generating import Limits, generate_pictures
from sticker_uq.datasets.generators import CAMERA_SIZE, Picture, RenderedGenerator
from sticker_uq.datasets.image_services import OpenAIGenerator, StabilityGenerator
from sticker_uq.datasets.manifest import open_manifest
from sticker_uq.datasets.prompts import Prompt, write_prompts
from sticker_uq.scene import InvalidInput

KEY = "sk-very-secret-4711"
REFUSAL = (
    400,
    {"error": {"code": "content_policy_violation", "message": "rejected by our safety system"}},
    {},
)


def encoded(colour=(10, 200, 30), kind="PNG"):
    stream = io.BytesIO()
    Image.new("RGB", (40, 32), colour).save(stream, kind)
    return stream.getvalue()


PNG = encoded()


def openai_answer(data=PNG):
    return (
        200,
        {"data": [{"b64_json": base64.b64encode(data).decode(), "revised_prompt": "a grey laptop"}]},
        {},
    )


def stability_answer(data=PNG, reason="SUCCESS"):
    return 200, {"image": base64.b64encode(data).decode(), "finish_reason": reason, "seed": 1}, {}


class Service(ThreadingHTTPServer):
    """Answers requests in the order of `answers`, and a last one for ever; None: no answer until the test ends."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.requests, self.ended = [], [], threading.Event()
        self.silent = threading.Event()  # set while a request waits for nothing
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        service = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        service.requests.append((self.path, dict(self.headers.items()), body))
        answer = service.answers.pop(0) if len(service.answers) > 1 else service.answers[0]
        if answer is None:
            service.silent.set()
            service.ended.wait(60)
            return
        status, content, headers = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def service():
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()


def prompts(count=1):
    return [Prompt(index, 100 + index, 1, f"a laptop, number {index}") for index in range(count)]


def entries(folder):
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]


def statuses(folder):
    return [entry["status"] for entry in entries(folder) if entry["status"] != "asked"]


def go(folder, service, count=1, waits=None, timeout=30.0, **limits):
    generator = OpenAIGenerator(KEY, base_url=service.url, timeout=timeout)
    sleep = (lambda _: None) if waits is None else waits.append
    return generate_pictures(folder, prompts(count), generator, Limits(**limits), sleep=sleep)


def test_openai_is_asked_as_its_api_wants_and_the_picture_is_kept_byte_for_byte(tmp_path, service):
    service.answers = [openai_answer()]
    outcome = go(tmp_path, service)
    path, headers, body = service.requests[0]
    assert (path, headers["Authorization"]) == ("/images/generations", f"Bearer {KEY}")
    assert json.loads(body) == {
        "model": "dall-e-3",
        "prompt": "a laptop, number 0",
        "n": 1,
        "size": "1024x1024",
        "quality": "standard",
        "style": "vivid",
        "response_format": "b64_json",
    }
    assert (outcome.done, outcome.failed) == (1, 0)
    entry = entries(tmp_path)[-1]
    assert (entry["prompt"], entry["seed"], entry["detail"]) == ("a laptop, number 0", 100, "a grey laptop")
    assert (tmp_path / entry["file"]).read_bytes() == PNG


def test_a_model_other_than_dall_e_is_not_asked_for_what_it_does_not_know(service):
    service.answers = [openai_answer()]
    OpenAIGenerator(KEY, model="gpt-image-1", base_url=service.url).generate(prompts()[0])
    assert set(json.loads(service.requests[0][2])) == {"model", "prompt", "n", "size"}


def test_stability_is_asked_by_a_form_with_the_seed(tmp_path, service):
    service.answers = [stability_answer(encoded(kind="JPEG")), stability_answer(reason="CONTENT_FILTERED")]
    generator = StabilityGenerator(KEY, base_url=service.url + "/")
    outcome = generate_pictures(tmp_path, prompts(2), generator, Limits())
    path, headers, body = service.requests[0]
    assert path == "/v2beta/stable-image/generate/sd3"
    assert (headers["Authorization"], headers["Accept"]) == (f"Bearer {KEY}", "application/json")
    parts = message_from_bytes(
        f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body
    ).get_payload()
    form = {part.get_param("name", header="content-disposition"): part.get_payload() for part in parts}
    assert (form["prompt"], form["seed"], form["aspect_ratio"]) == ("a laptop, number 0", "101", "5:4")
    assert form["model"] == "sd3.5-large"
    assert statuses(tmp_path) == ["done", "refused"]
    assert outcome.refused == 1
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["00000.jpg"]


@pytest.mark.parametrize(
    "refusal",
    [REFUSAL, (403, {"id": "1", "name": "content_moderation", "errors": ["Your request was flagged"]}, {})],
)
def test_a_refusal_is_recorded_costs_nothing_is_never_asked_again_and_the_rest_goes_on(
    tmp_path, service, refusal
):
    service.answers = [refusal, openai_answer()]
    outcome = go(tmp_path, service, 3, price=1.0)
    assert statuses(tmp_path) == ["refused", "done", "done"]
    assert (outcome.refused, outcome.done, outcome.spent) == (1, 2, 2.0)
    assert go(tmp_path, service, 3, price=1.0) == outcome
    assert len(service.requests) == 3


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, 1.0),
        ({}, 1.0),
    ],
)
def test_a_rate_limit_is_waited_for_as_long_as_the_service_asks(tmp_path, service, headers, expected):
    service.answers = [
        (429, {"error": {"code": "rate_limit_exceeded", "message": "slow"}}, headers),
        openai_answer(),
    ]
    waits = []
    assert go(tmp_path, service, waits=waits, price=1.0).spent == 1.0
    assert waits == [expected]
    assert statuses(tmp_path) == ["retry", "done"]


def test_a_date_to_wait_for_is_measured_by_the_clock(service):
    from sticker_uq.datasets.image_services import _retry_after

    assert _retry_after({"Retry-After": "Thu, 01 Jan 1970 00:01:40 GMT"}, now=58.0) == 42.0


def test_nobody_waits_a_day_for_one_picture(tmp_path, service):
    service.answers = [(429, b"", {"Retry-After": "86400"}), openai_answer()]
    waits = []
    outcome = go(tmp_path, service, 2, waits=waits)
    assert (waits, statuses(tmp_path), outcome.failed) == ([], ["failed", "done"], 1)


def test_retries_end_and_the_next_run_asks_again(tmp_path, service):
    service.answers = [(503, b"<html>busy", {}), (500, b"", {}), (502, b"", {}), openai_answer()]
    waits = []
    outcome = go(tmp_path, service, 2, waits=waits, attempts=3)
    assert (outcome.failed, outcome.done, waits) == (1, 1, [1.0, 2.0])
    assert statuses(tmp_path) == ["retry", "retry", "failed", "done"]
    assert go(tmp_path, service, 2).done == 2
    assert len(service.requests) == 5
    assert [entry["attempt"] for entry in entries(tmp_path) if entry["index"] == 0] == [
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]


def test_a_service_that_is_down_ends_the_run(tmp_path, service):
    service.answers = [(500, b"", {})]
    with pytest.raises(InvalidInput, match="3 prompts in a row"):
        go(tmp_path, service, 9, attempts=2)
    assert len(service.requests) == 6


@pytest.mark.parametrize(
    "answer",
    [
        openai_answer(PNG[:-20]),
        openai_answer(encoded(kind="JPEG")[:-30]),
        openai_answer(b"GIF89a"),
        (200, {"data": [{"b64_json": "*"}]}, {}),
        (200, {"data": []}, {}),
        (200, {"data": [{"url": "http://elsewhere"}]}, {}),
        (200, [], {}),
        (200, b"\xff\xfe", {}),
    ],
)
def test_a_broken_picture_is_asked_for_again_counts_as_paid_and_leaves_no_file(tmp_path, service, answer):
    service.answers = [answer, answer, openai_answer()]
    outcome = go(tmp_path, service, 2, attempts=2, price=0.5)
    assert (outcome.done, outcome.failed, outcome.spent) == (1, 1, 1.5)
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["00001.png"]


def test_a_service_that_does_not_answer_is_asked_again_and_counts_as_paid(tmp_path, service):
    service.answers = [None, openai_answer()]
    outcome = go(tmp_path, service, timeout=0.3, price=1.0)
    assert (outcome.done, outcome.spent) == (1, 2.0)
    retried = next(entry for entry in entries(tmp_path) if entry["status"] == "retry")
    assert "ReadTimeout" in retried["detail"]


def test_no_connection_is_not_paid_for(tmp_path):
    with Service() as closed:
        url = closed.url
    outcome = generate_pictures(
        tmp_path,
        prompts(),
        OpenAIGenerator(KEY, base_url=url),
        Limits(price=1.0, attempts=2),
        sleep=lambda _: None,
    )
    assert (outcome.failed, outcome.spent) == (1, 0.0)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, {"code": "invalid_api_key", "message": f"Incorrect API key provided: {KEY}."}),
        (403, {"code": "unsupported_country", "message": "no"}),
        (429, {"code": "insufficient_quota", "message": "no money"}),
        (400, {"code": "billing_hard_limit_reached", "message": "no money"}),
        (302, {"code": "moved", "message": "elsewhere"}),
    ],
)
def test_what_no_retry_can_mend_ends_the_run_at_once(tmp_path, service, status, error):
    service.answers = [(status, {"error": error}, {"Location": "/elsewhere"})]
    with pytest.raises(InvalidInput, match=error["code"]) as caught:
        go(tmp_path, service, 3)
    assert len(service.requests) == 1
    assert KEY not in str(caught.value)


def test_limits_hold_over_several_runs(tmp_path, service):
    service.answers = [openai_answer()]
    first = go(tmp_path, service, 9, pictures=2, price=0.1)
    assert (first.done, first.stopped) == (2, "2 pictures")
    second = go(tmp_path, service, 9, cost=0.3, price=0.1)
    assert (second.done, round(second.spent, 6)) == (3, 0.3)
    assert "0.30" in second.stopped
    assert len(service.requests) == 3


def test_retries_do_not_exceed_the_cost(tmp_path, service):
    service.answers = [openai_answer(b"broken")]
    outcome = go(tmp_path, service, 9, attempts=5, cost=2.0, price=1.0)
    assert (outcome.spent, len(service.requests)) == (2.0, 2)


class Dying(RenderedGenerator):
    """Ends the program while it makes the picture of one prompt."""

    def generate(self, prompt):
        if prompt.index == 2:
            raise SystemExit
        return Picture(PNG)


class Counting(RenderedGenerator):
    def __init__(self):
        self.asked = []

    def generate(self, prompt):
        self.asked.append(prompt.index)
        return Picture(PNG)


def test_what_a_kill_leaves_behind_is_mended(tmp_path):
    with pytest.raises(SystemExit):
        generate_pictures(tmp_path, prompts(4), Dying(), Limits(price=1.0))
    torn = (tmp_path / "manifest.jsonl").read_bytes() + b'{"index": 2, "se'
    (tmp_path / "manifest.jsonl").write_bytes(torn)
    (tmp_path / "images" / ".00002.png.x.tmp").write_bytes(b"half")
    again = Counting()
    outcome = generate_pictures(tmp_path, prompts(4), again, Limits(price=1.0))
    assert again.asked == [2, 3]
    assert (outcome.done, outcome.spent) == (4, 5.0)  # the request that was killed may have been paid
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == [f"{i:05d}.png" for i in range(4)]
    assert len([entry for entry in entries(tmp_path) if entry["status"] == "done"]) == 4


def test_a_picture_that_was_deleted_is_made_again(tmp_path):
    generate_pictures(tmp_path, prompts(2), Counting(), Limits())
    (tmp_path / "images" / "00001.png").unlink()
    again = Counting()
    assert generate_pictures(tmp_path, prompts(2), again, Limits()).done == 2
    assert again.asked == [1]


def test_a_folder_belongs_to_its_prompts_and_to_one_process(tmp_path):
    generate_pictures(tmp_path, prompts(1), Counting(), Limits())
    other = [Prompt(0, 100, 1, "a tablet")]
    with pytest.raises(InvalidInput, match="expected the same prompts"):
        generate_pictures(tmp_path, other, Counting(), Limits())
    with open_manifest(tmp_path), pytest.raises(InvalidInput, match="another process"):
        generate_pictures(tmp_path, prompts(1), Counting(), Limits())
    (tmp_path / "manifest.jsonl").write_text('{"index": 0}\n')
    with pytest.raises(InvalidInput, match="line 1"):
        generate_pictures(tmp_path, prompts(1), Counting(), Limits())


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "ftp://127.0.0.1",
        "nonsense",
        "",
        "https://a:b@c",
        "http://[",
        "https://host:port",
    ],
)
def test_a_key_is_only_sent_over_https_or_to_this_machine(url):
    with pytest.raises(InvalidInput, match="base URL"):
        OpenAIGenerator(KEY, base_url=url)


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "schlüssel"])
def test_a_key_that_fits_no_header_is_refused_unseen(key):
    with pytest.raises(InvalidInput, match="one word") as caught:
        OpenAIGenerator(key)
    assert not key or key not in str(caught.value)


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
