# SPDX-License-Identifier: Apache-2.0
"""Keep or drop: what was decided survives a kill, the page shows and stores it, the kept pictures come out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from sticker_uq.cli.review_app import make_app
from sticker_uq.lab.datasets.reviewing import REVIEW, Review
from sticker_uq.scene import InvalidInput
from test.helpers.browser import chromium

NAMES = ["0.png", "1.png", "2.png"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "generated"
    (root / "images").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        cv2.imwrite(str(root / "images" / name), np.full((24, 32, 3), 80 * number, np.uint8))
    lines = [{"file": f"images/{name}", "prompt": f"lid {name}", "status": "done"} for name in NAMES]
    (root / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def verdicts(review: Review) -> list[str]:
    return [picture.verdict for picture in review.pictures]


def test_what_was_decided_is_there_again(folder: Path, tmp_path: Path) -> None:
    review = Review(folder)
    assert [p.prompt for p in review.pictures] == [f"lid {name}" for name in NAMES]
    review.decide("0.png", "keep")
    review.decide("1.png", "keep")
    review.decide("1.png", "drop")
    with (folder / REVIEW).open("a") as stream:
        stream.write('{"picture": "2.png", "verd')  # killed while it wrote
    again = Review(folder)
    assert verdicts(again) == ["keep", "drop", "undecided"]
    again.decide("2.png", "keep")
    assert verdicts(Review(folder)) == ["keep", "drop", "keep"]
    target = tmp_path / "kept"
    assert again.export(target) == 2
    again.decide("0.png", "undecided")
    assert again.export(target) == 1
    assert [path.name for path in (target / "images").iterdir()] == ["2.png"]
    assert (target / "images" / "2.png").read_bytes() == (folder / "images" / "2.png").read_bytes()


def test_what_is_wrong_is_named(folder: Path, tmp_path: Path) -> None:
    review = Review(folder)
    with pytest.raises(InvalidInput, match=r"picture '\.\./manifest\.jsonl': expected one in"):
        review.path("../manifest.jsonl")
    with pytest.raises(InvalidInput, match="verdict 'maybe': expected one of keep, drop, undecided"):
        review.decide("0.png", "maybe")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="no pictures"):
        Review(tmp_path / "empty")
    (folder / REVIEW).write_text('{"picture": "0.png", "verdict": "perhaps"}\n')
    with pytest.raises(InvalidInput, match="expected a picture and one of"):
        Review(folder)


def test_the_server_answers_to_this_machine_only(folder: Path) -> None:
    review = Review(folder)
    client = TestClient(make_app(review), base_url="http://127.0.0.1")
    assert client.get("/pictures/0.png").content == (folder / "images" / "0.png").read_bytes()
    assert client.get("/pictures/9.png").status_code == 404
    assert client.post("/decide", json={"picture": "0.png", "verdict": "keep"}).status_code == 200
    refused = client.post("/decide", json={"picture": "0.png", "verdict": "maybe"})
    assert (refused.status_code, verdicts(review)[0]) == (422, "keep")
    elsewhere = TestClient(make_app(review), base_url="http://evil.example")
    assert elsewhere.get("/state").status_code == 400
    page = client.get("/").text
    assert not re.search(r"(src|href)\s*=\s*\"?https?:", page)


def test_a_person_reviews_in_the_browser_and_goes_on_later(folder: Path, tmp_path: Path) -> None:
    """The real command and a real browser: keep, drop, end by Ctrl-C, again from the first picture that is left."""
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "sticker_uq.cli", "dataset", "review", str(folder), "--kept", str(kept)]
    with chromium() as browser:
        for expected, keys in (("Picture 1 of 3", "kd"), ("Picture 3 of 3", "k")):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            try:
                address = process.stdout.readline().split()[0]
                page = browser.new_page()
                page.set_default_timeout(60_000)
                page.goto(address)
                page.get_by_role("status").filter(has_text=expected).wait_for()
                for key in keys:
                    before = page.get_by_role("status").inner_text()
                    page.keyboard.press(key)
                    page.wait_for_function(
                        "b => document.getElementById('count').textContent !== b", arg=before
                    )
                page.close()
                process.send_signal(signal.SIGINT)
                rest = process.stdout.read()
                assert process.wait(60) == 0
            finally:
                process.kill()
                process.wait()
    assert "2 kept, 1 dropped, 0 to decide" in rest
    assert sorted(path.name for path in (kept / "images").iterdir()) == ["0.png", "2.png"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_another_picture_of_the_same_name_is_kept(folder: Path, tmp_path: Path) -> None:
    review = Review(folder)
    review.decide("0.png", "drop")
    review.decide("1.png", "keep")
    (tmp_path / "kept" / "images").mkdir(parents=True)
    mine = tmp_path / "kept" / "images" / "0.png"
    mine.write_bytes(b"mine")
    assert review.export(tmp_path / "kept") == 1
    assert mine.read_bytes() == b"mine"
    review.decide("0.png", "keep")
    review.decide("2.png", "keep")
    with pytest.raises(InvalidInput, match=r"0\.png: is another picture than"):
        review.export(tmp_path / "kept")
    assert mine.read_bytes() == b"mine"
    assert not (tmp_path / "kept" / "images" / "2.png").exists()


@pytest.mark.parametrize(
    "body",
    ['{"picture": NaN, "verdict": 1e999}', '{"picture": "\\ud800", "verdict": "keep"}', "[" * 50_000, "\xff"],
)
def test_a_request_that_json_cannot_answer_is_refused(folder: Path, body: str) -> None:
    client = TestClient(make_app(Review(folder)), base_url="http://127.0.0.1", raise_server_exceptions=False)
    answered = client.post("/decide", content=body, headers={"Content-Type": "application/json"})
    assert answered.status_code in (400, 422)
    assert client.get("/state").status_code == 200
