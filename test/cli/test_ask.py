# SPDX-License-Identifier: Apache-2.0
"""From a folder of pictures over a person's answers to a policy, by the commands; what the detector saw is drawn from a seed."""

import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from sticker_uq.calibration import making
from sticker_uq.calibration.answers import ANSWERS, Question, read_answers
from sticker_uq.cli import app, ask
from sticker_uq.console.asking import SaidOfLaptop
from sticker_uq.gate import Policy
from sticker_uq.io.coco import EncodedScene, write_coco
from sticker_uq.perception.pipeline import image_digest
from test.calibration.test_answers import POLICY, laptop
from test.helpers.answering import said_from_labels

COUNT = 60
RECORDS = [replace(laptop(np.random.default_rng(seed)), workpiece="") for seed in range(COUNT)]
"""What is on the picture of each grey level, and what is seen there."""


def scene(number):
    record, picture = RECORDS[number], np.full((250, 250, 3), number, np.uint8)
    data = cv2.imencode(".png", picture)[1].tobytes()
    return EncodedScene(number, "png", data, 250, 250, boxes=record.boxes, labels=record.labels)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Folders ``labelled`` and ``pictures`` of the same laptops and a policy ``base.yaml``; perception has seen them."""
    perception = SimpleNamespace(
        model_hash="m" * 64, settings_hash="s" * 64, panel_hash="", novelty_problem=""
    )

    def look(images, perception):
        for item in images:
            seen = RECORDS[item.image[0, 0, 0]].assessment
            seen = replace(seen, settings_hash=perception.settings_hash, stamp_ns=item.stamp_ns)
            yield item, replace(seen, image_digest=image_digest(item.image))

    monkeypatch.setattr(making, "load_perception", lambda _: perception)
    monkeypatch.setattr(making, "identity_of", lambda _: None)
    monkeypatch.setattr(making, "one_by_one", look)
    write_coco(tmp_path / "labelled", map(scene, range(COUNT)))
    shutil.copytree(tmp_path / "labelled" / "images", tmp_path / "pictures")
    making.write_policy(POLICY, tmp_path / "base.yaml")
    return tmp_path


def run(folder, name, data, *more):
    options = ["--data", str(folder / data), "--base", str(folder / "base.yaml"), "--jobs", "1"]
    result = CliRunner().invoke(app, [name, *options, "--cache", str(folder / "cache.sqlite"), *more])
    return result.exit_code, " ".join(result.output.split())


def prove(folder, data, *more):
    out = str(folder / f"{data}.yaml")
    return run(folder, "calibrate", data, "--out", out, "--alpha", "0.9", "--beta", "0.9", *more)


def answer(monkeypatch, folder, most=COUNT):
    """Let a person who sees the labels answer ``most`` laptops on the page of `ask`, and then press Ctrl-C."""

    @contextmanager
    def page(asking, _):
        for _ in range(most):
            asked = asking.state()["question"]
            record = RECORDS[int(Path(asked["name"]).stem)]
            question = Question(
                asked["image"], asked["name"], Path(), asked["size"], tuple(map(tuple, asked["boxes"]))
            )
            boxes, same, other = said_from_labels(question, record)
            asking.say(SaidOfLaptop(image=asked["image"], boxes=boxes, same=same, other=other))
        yield "http://page/"

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(ask, "serve", page)
    monkeypatch.setattr(ask, "take_time_to_end", lambda: None)
    monkeypatch.setattr(ask.signal, "pause", interrupted)
    return run(folder, "ask", "pictures")


def test_answers_prove_what_labels_prove(folder, monkeypatch):
    status, said = answer(monkeypatch, folder)
    assert status == 0, said
    assert f"{COUNT} of {COUNT} laptops answered, in {folder / 'pictures' / ANSWERS}" in said
    for data in ("labelled", "pictures"):
        status, said = prove(folder, data, "--fit-share", "0", "--report", str(folder / f"{data}.md"))
        assert status == 0, said
    by_labels, by_answers = (Policy.load(folder / f"{data}.yaml") for data in ("labelled", "pictures"))
    assert by_labels.guarantee is not None
    assert by_labels.guarantee.wrongful_removal.events > 0
    assert by_labels.guarantee.sticker_left.events > 0
    assert by_labels.guarantee == by_answers.guarantee
    assert by_labels.validity == by_answers.validity
    assert by_labels.provenance.data[0].fingerprint != by_answers.provenance.data[0].fingerprint
    report = (folder / "pictures.md").read_text()
    assert "count as one for each laptop" in report
    assert "that are logos" not in report


def test_the_command_resumes_and_calibrate_says_what_is_left_out(folder, monkeypatch):
    assert answer(monkeypatch, folder, 30)[0] == 0
    lines = (folder / "pictures" / ANSWERS).read_text().splitlines()
    first = sorted(read_answers(folder / "pictures" / ANSWERS)[1])
    gone = next((folder / "pictures").glob("*.png"))
    said = prove(folder, "pictures", "--fit-share", "0")[1]
    assert "30 labelled or answered images; in the proof at most 30 laptops" in said
    assert f"{folder / 'pictures'}: 30 of {COUNT} pictures have no answers and prove nothing" in said
    status, said = answer(monkeypatch, folder, 30)
    assert (status, f"{COUNT} of {COUNT} laptops answered" in said) == (0, True), said
    answers = (folder / "pictures" / ANSWERS).read_text().splitlines()
    assert answers[: len(lines)] == lines
    assert sorted(read_answers(folder / "pictures" / ANSWERS)[1])[:30] == first, "in the order of the digests"
    gone.unlink()
    assert (
        "1 answers are about pictures that are not there" in prove(folder, "pictures", "--fit-share", "0")[1]
    )


def test_what_answers_cannot_do_is_refused(folder, monkeypatch):
    assert run(folder, "ask", "labelled")[0] == 2, "its labels say all"
    assert answer(monkeypatch, folder)[0] == 0
    for options, why in (
        ((), "answers prove a score and fit none"),
        (("--fit-share", "0", "--match-iou", "0.5"), "a person said which box takes a sticker"),
    ):
        status, said = prove(folder, "pictures", *options)
        assert (status, why in said) == (2, True), said
    monkeypatch.setattr(making.load_perception(None), "settings_hash", "t" * 64)
    status, said = prove(folder, "pictures", "--fit-share", "0")
    assert (status, "settings_hash ssssssssssss, and this is tttttttttttt" in said) == (2, True), said
    assert not (folder / "pictures.yaml").exists()


def test_a_base_that_releases_more_is_refused_until_that_is_asked_too(folder, monkeypatch):
    making.write_policy(POLICY.model_copy(update={"min_probability": 0.7}), folder / "base.yaml")
    assert answer(monkeypatch, folder)[0] == 0
    making.write_policy(POLICY, folder / "base.yaml")
    status, said = prove(folder, "pictures", "--fit-share", "0")
    assert (status, "could be released, and nobody was asked about it" in said) == (2, True), said
    said = answer(monkeypatch, folder, 0)[1]
    asked_again = COUNT - int(re.findall(rf"(\d+) of {COUNT} laptops answered:", said)[0])
    assert 0 < asked_again < COUNT
    assert answer(monkeypatch, folder, asked_again)[0] == 0
    status, said = prove(folder, "pictures", "--fit-share", "0")
    assert status == 0, said


def test_a_page_for_other_machines_needs_a_token_before_anything_is_assessed(folder):
    status, said = run(folder, "ask", "pictures", "--host", "0.0.0.0")
    assert (status, "expected token_file" in said, "assessing" in said) == (2, True, False), said
    assert not (folder / "pictures" / ANSWERS).exists()


def test_a_picture_that_is_there_twice_is_refused_before_anything_is_asked(folder):
    shutil.copy(next((folder / "pictures").glob("*.png")), folder / "pictures" / "again.png")
    status, said = run(folder, "ask", "pictures")
    assert (status, "again.png" in said) == (2, True), said
    assert not (folder / "pictures" / ANSWERS).exists()
