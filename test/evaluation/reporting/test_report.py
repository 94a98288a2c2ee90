# SPDX-License-Identifier: Apache-2.0
"""The report is one file, says what happened, and stays small."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest

from sticker_uq.evaluation.annotated_images import annotate
from sticker_uq.evaluation.report_model import (
    Course,
    Headline,
    Report,
    ReportEntry,
    ReportLaptop,
    TimelineEvent,
    Tone,
)
from sticker_uq.evaluation.reporting import report as report_module
from sticker_uq.evaluation.reporting.report import render_report
from sticker_uq.scene import Status

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Checks that tags close in order, and collects text and links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []
        self.feed(html)
        assert not self.open
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


@pytest.fixture
def full(image, assessment, decision) -> Report:
    entry = ReportEntry("First image", assessment, decision, annotate(image, assessment, decision))
    broken = replace(
        assessment, status=Status.FAILED, status_text="image data is truncated", objects=(), unstable=()
    )
    events = (
        TimelineEvent(2_000_000_000, "cell", "laptop handed over"),
        TimelineEvent(3_500_000_000, "arm", "peeled #0", Tone.GOOD),
    )
    laptop = ReportLaptop(
        "Laptop <1>",
        (entry, ReportEntry("Broken", broken)),
        events,
        "left to a person",
        Tone.WARN,
        (("stickers", "2"),),
        (Course("DiL", (0.1, float("nan"), 0.7, 0.2), 0.6),),
    )
    return Report(
        "Two laptops",
        "What happened & why.",
        (laptop, ReportLaptop("Laptop 2", ())),
        (Headline("removed", "1", Tone.GOOD),),
        ("laptop", "removed", "ms"),
        (("Laptop <1>", 1, 123.456), ("Laptop 2", 0, None)),
        {"score": 0.8, "shannon_entropy": 0.9, "dil": 0.6},
        {"encode": 10.0, "sample": 30.0, "total": 40.0},
        {"model": "ssdlite320_mobilenet_v3_large"},
    )


def test_the_page_is_whole_and_says_what_happened(full):
    page = Page(render_report(full))
    for words in (
        "Two laptops", "What happened & why.", "Laptop <1>", "? left to a person",
        "2 stickers and 1 logo seen, 1 more too seldom to be measured.", "Decision: a sticker may be removed.", "✓ remove",
        "#0 sticker within all limits", "probability of sticker 0.3 is below the limit 0.8",
        "The image could not be assessed: image data is truncated.", "+1.5 s arm peeled #0", "DiL, limit 0.6", "sample 30.0 ms",
        "not a safety function", "ssdlite320_mobilenet_v3_large", "123", "–",
    ):  # fmt: skip
        assert words in page.text, words


def test_the_page_refers_to_nothing_but_itself(full):
    html = render_report(full)
    assert all(link.startswith(("data:", "#")) for link in Page(html).links)
    assert not re.findall(r"https?://(?!www\.w3\.org)|@import|url\((?!#)|<script", html)


def test_the_picture_is_inside(full):
    (link,) = [link for link in Page(render_report(full)).links if link.startswith("data:image/jpeg;base64,")]
    data = np.frombuffer(base64.b64decode(link.split(",", 1)[1]), np.uint8)
    picture = full.laptops[0].entries[0].picture
    assert np.abs(cv2.imdecode(data, cv2.IMREAD_COLOR).astype(int) - picture).mean() < 6


def test_many_pictures_are_made_smaller_until_the_file_fits(full, monkeypatch):
    monkeypatch.setattr(report_module, "PICTURE_BUDGET", 60_000)
    noise = [np.random.default_rng(i).integers(0, 255, (480, 640, 3), np.uint8) for i in range(6)]
    entries = tuple(ReportEntry(f"{i}", None, picture=p) for i, p in enumerate(noise))
    html = render_report(replace(full, laptops=(ReportLaptop("one", entries),)))
    assert html.count("data:image/jpeg") == 6
    assert len(html) < 60_000 * 4 / 3 + 40_000


def test_an_empty_report_is_a_page_too():
    assert "Nothing" in Page(render_report(Report("Nothing", "", ()))).text
