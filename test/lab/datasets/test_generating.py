# SPDX-License-Identifier: Apache-2.0
"""Generators against a server on this machine that speaks the services' APIs."""

import json
from email import message_from_bytes

import pytest

from sticker_uq.lab.datasets.generating import Limits, generate_pictures
from sticker_uq.lab.datasets.generators import Picture, RenderedGenerator
from sticker_uq.lab.datasets.image_services import OpenAIGenerator, StabilityGenerator
from sticker_uq.lab.datasets.manifest import open_manifest
from sticker_uq.lab.datasets.prompts import Prompt
from sticker_uq.scene import InvalidInput
from test.helpers.image_service import (
    KEY,
    PNG,
    REFUSAL,
    Service,
    encoded,
    entries,
    go,
    openai_answer,
    prompts,
    stability_answer,
    statuses,
)


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
    from sticker_uq.lab.datasets.image_services import _retry_after

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
    outcome = go(tmp_path, service, timeout=3.0, price=1.0)
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
def test_a_permanent_error_ends_the_run_at_once(tmp_path, service, status, error):
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


def test_what_a_kill_leaves_behind_is_recovered(tmp_path):
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
