# SPDX-License-Identifier: Apache-2.0
"""The report of a study in a real browser, and what it says without one."""

import dataclasses
import json
import re
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from sticker_uq.io.coco import EncodedScene, write_coco
from sticker_uq.lab.studies.detectors import study_report
from sticker_uq.lab.studies.detectors.labelled import labelled_images
from sticker_uq.lab.studies.detectors.study_plan import DataSet, ModelChoice, StudySettings
from sticker_uq.lab.studies.detectors.study_report import write_report
from sticker_uq.lab.studies.detectors.study_run import Study, Work
from test.helpers.browser import chromium

GOOD, BAD = "good", "bad"
RATES = (0.1, 0.3)
IMAGES = 6
SIZE = (320, 240)


def noise(seed: int) -> np.ndarray:
    """A picture that hardly compresses."""
    return np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], 3), np.uint8)


def encoded(image: np.ndarray) -> bytes:
    return cv2.imencode(".png", image)[1].tobytes()


def study(folder: Path) -> Study:
    """Results of two models that were never run: good sees all, bad less from image to image, and less when attacked."""
    boxes = np.array([[40, 40, 100, 90], [250, 150, 300, 200]], np.float32)
    labels = np.array([1, 2])
    write_coco(
        folder / "data",
        (EncodedScene(n, "png", encoded(noise(n)), *SIZE, boxes, labels) for n in range(IMAGES)),
    )
    architecture = "ssdlite320_mobilenet_v3_large"
    settings = StudySettings(
        models=tuple(ModelChoice.parse(f"{name}:{architecture}") for name in (GOOD, BAD)),
        datasets=(DataSet.parse(f"lids={folder / 'data'}"),),
        rates=RATES,
        passes=5,
        adversarial=1,
    )
    plan = Study(settings, pd.DataFrame(), pd.DataFrame(), pd.DataFrame(), {GOOD: "a", BAD: "b"})
    items = labelled_images(settings.datasets[0], folder)
    work = Work(settings, folder, {"lids": items}, plan.weights)
    rows, objects, attacks = [], [], []
    for model in settings.models:
        for number, item in enumerate(items):
            file = work.file(model, "lids", item, "adv-00")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encoded(noise(100 + number)))
            where = {"dataset": "lids", "image": item.path.name}
            attacks.append(
                where | {"attacked": model.label, "variant": "adv-00", "iterations": 3, "rms": 1.25, "linf": 9.0}
                | {"targets": 4, "fooled": 2, "success": 0.5}
            )  # fmt: skip
            other = f"from {GOOD if model.label == BAD else BAD}"
            for variant in ("clean", "adv-00", other):
                for rate in RATES[: 1 if variant == other else None]:
                    bad, moved = model.label == BAD, variant != "clean"
                    accuracy = (
                        1.0 - bad * 0.1 * (number + 1) - moved * (0.05 * number if bad else 0.01) - rate / 10
                    )
                    doubt = 1.2 - accuracy + rate
                    here = {**where, "model": model.label, "variant": variant, "dropout_rate": rate}
                    rows.append(
                        here | {"width": SIZE[0], "height": SIZE[1], "truth_objects": 2, "map": accuracy, "dil": 0.2}
                        | dict.fromkeys(("variation_ratio", "mutual_information"), doubt / 10)
                        | {"shannon_entropy": doubt, "total_variance": 90 * doubt, "predictive_surface": 50 * doubt}
                        | {"relative_total_variance": doubt / 50, "relative_predictive_surface": doubt / 90}
                        | {"true_positives": 2 - bad, "false_positives": 0, "false_negatives": int(bad)}
                        | {"detection_rate": 0.9, "lrp": 0.3, "pdq": 0.7, "pdq_sum": 1.4}
                        | {"encode_ms": 10.0, "look_ms": 1.0, "decode_ms": 5.0}
                    )  # fmt: skip
                    for label, box in list(zip(labels, boxes, strict=True))[: 2 - bad]:
                        corners = dict(zip(("x1", "y1", "x2", "y2"), map(float, box), strict=True))
                        found = {"label": int(label), "score": 0.9 - rate, "right": True, "iou": 0.8}
                        objects.append(here | found | {"detection_rate": 0.9} | corners)
    made = {"images": pd.DataFrame(rows), "objects": pd.DataFrame(objects), "attacks": pd.DataFrame(attacks)}
    return dataclasses.replace(plan, **made)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(study(folder), folder, resamples=0)
    return folder


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser, written):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    context.set_default_timeout(60_000)
    opened, trouble = context.new_page(), []
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on(
        "request", lambda request: trouble.append(request.url) if request.url.startswith("http") else None
    )
    opened.goto((written / "report.html").as_uri())
    yield opened
    context.close()
    assert trouble == []


def names(page) -> list[str]:
    return page.locator("#images li span:first-child").all_text_contents()


def test_pictures_are_chosen_by_model_rate_and_variant(page):
    expect(page.locator("#gallery")).to_be_hidden()
    expect(page.locator("#model option:checked")).to_have_text(BAD)
    worst = f"{IMAGES - 1:08d}.png"
    expect(page.locator("#views figcaption")).to_have_text([f"{worst}, clean", f"{worst}, attack 1"])
    expect(page.locator("#count")).to_have_text(f"Picture 1 of {IMAGES}")
    expect(page.locator("#views .seen text")).to_have_text(["logo 0.60"] * 2)
    expect(page.locator("#views .truth")).to_have_count(4)
    page.select_option("#rate", label="0.1")
    expect(page.locator("#views .seen text")).to_have_text(["logo 0.80"] * 2)
    expect(page.locator("#measured tr", has_text="mAP")).to_contain_text("0.390")
    expect(page.locator("#attack")).to_contain_text(
        "by 1.25 grey levels (RMS), at most 9, in 3 iterations; 2 of 4 targets"
    )
    shown = page.locator("#views use").evaluate_all("all => all.map((use) => use.getAttribute('href'))")
    assert len(set(shown)) == 2
    drawn = page.locator("#views .seen").first.bounding_box()
    assert drawn["width"] / drawn["height"] == pytest.approx(SIZE[0] / SIZE[1], rel=0.01)
    page.select_option("#rate", label="0.3")
    page.select_option("#variant", label=f"attack on {GOOD}")
    expect(page.locator("#attack")).to_have_text(
        "Both at a dropout rate of 0.1, the only one for these attacks."
    )
    expect(page.locator("#views .seen text")).to_have_text(["logo 0.80"] * 2)


def test_pictures_are_sorted_and_filtered(page):
    page.select_option("#model", label=BAD)
    page.select_option("#order", label="lowest mAP")
    assert names(page) == [f"{n:08d}.png" for n in reversed(range(IMAGES))]
    page.select_option("#order", label="by name")
    assert names(page) == [f"{n:08d}.png" for n in range(IMAGES)]
    page.select_option("#order", label="most changed: mAP")
    assert names(page)[0] == f"{IMAGES - 1:08d}.png"
    expect(page.locator("#images li").first.locator("span").last).to_have_text("-0.250")
    page.select_option("#filter", label="mAP falls by 0.1 or more")
    assert names(page) == [f"{n:08d}.png" for n in reversed(range(2, IMAGES))]
    page.fill("#name", "00003")
    assert names(page) == ["00000003.png"]
    page.fill("#name", "none of them")
    expect(page.locator("#count")).to_have_text("No such picture.")
    page.fill("#name", "")
    page.select_option("#model", label=GOOD)
    assert names(page) == []
    page.select_option("#filter", label="something is missed")
    page.select_option("#model", label=BAD)
    assert len(names(page)) == IMAGES


def test_the_keyboard_goes_through_them(page):
    page.keyboard.press("ArrowRight")
    expect(page.locator("#count")).to_have_text(f"Picture 2 of {IMAGES}")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#count")).to_have_text(f"Picture {IMAGES} of {IMAGES}")
    page.keyboard.press("m")
    expect(page.locator("#model option:checked")).to_have_text(GOOD)
    page.keyboard.press("r")
    expect(page.locator("#rate option:checked")).to_have_text("0.1")
    page.keyboard.press("Shift+S")
    expect(page.locator("#order option:checked")).to_have_text("by name")
    page.keyboard.press("b")
    expect(page.locator("#views rect")).to_have_count(0)
    page.keyboard.press("b")
    page.locator("#floor").fill("0.9")
    expect(page.locator("#views text")).to_have_count(0)
    expect(page.locator("#views .truth")).to_have_count(4)
    page.locator("#name").press("m")
    expect(page.locator("#model option:checked")).to_have_text(GOOD)


def test_the_headline_is_sorted_by_any_column(page):
    models = page.locator("#headline tbody tr td:nth-child(2)")
    head = page.locator("#headline th:nth-child(3)")
    expect(head).to_have_text("mAP ↑")
    head.click()
    expect(models).to_have_text([BAD, GOOD])
    expect(head).to_have_attribute("aria-sort", "ascending")
    head.press("Enter")
    expect(models).to_have_text([GOOD, BAD])
    page.locator("#headline th", has_text="model").click()
    expect(models).to_have_text([BAD, GOOD])
    expect(head).not_to_have_attribute("aria-sort", "descending")


def test_without_a_script_the_pictures_are_there(browser, written):
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto((written / "report.html").as_uri())
    expect(page.locator("#explorer")).to_be_hidden()
    expect(page.locator("#gallery h3", has_text=f"{BAD}: lowest mAP")).to_be_visible()
    expect(page.locator("#gallery figcaption", has_text="attacked").first).to_contain_text("mAP 0.")
    assert page.locator("#gallery figure").count() >= 12
    expect(page.locator("#gallery .seen").first).to_be_visible()
    context.close()


def test_what_it_says_in_short(written):
    summary = (written / "summary.md").read_text()
    assert f"- Most accurate (mAP): {GOOD}\n" in summary
    assert "| mAP ↑ | SE, bit ↓ |" in summary
    html = (written / "report.html").read_text()
    assert not re.search(r"""(src|href)=["']?http|url\(["']?http""", html)
    for name in re.findall(r'class="file">tables/(\w+)\.csv', html):
        assert (written / "tables" / f"{name}.csv").is_file(), name
    figures = pd.read_csv(written / "tables" / "pictures.csv")
    assert len(figures) == 2 * IMAGES * (2 * len(RATES) + 1)


def test_a_report_never_grows_beyond_its_bound(tmp_path, monkeypatch):
    """Pictures are left out, those that stand out most stay, and the page says so."""
    found = study(tmp_path)
    write_report(found, tmp_path, resamples=0)
    whole = (tmp_path / "report.html").stat().st_size
    monkeypatch.setattr(study_report, "MOST_BYTES", whole - 600_000)
    write_report(found, tmp_path, resamples=0)
    html = (tmp_path / "report.html").read_text()
    assert len(html.encode()) <= whole - 600_000
    document = json.loads(re.search(r'id="study">(.*?)</script>', html, re.DOTALL)[1])
    kept = [image["name"] for image in document["images"]]
    assert 0 < len(kept) < IMAGES
    assert f"{IMAGES - 1:08d}.png" in kept
    assert f"{IMAGES - len(kept)} of the images are left out" in html
    assert html.count("data:image/jpeg;base64,") == len(document["pictures"])


def test_nothing_that_was_detected_is_no_box(tmp_path):
    """Without any object, and with some that only one model saw."""
    found = study(tmp_path)
    one = found.objects[found.objects["model"] == GOOD]
    for objects in (one, found.objects[["dataset", "model", "variant", "dropout_rate", "image"]][:0]):
        write_report(dataclasses.replace(found, objects=objects), tmp_path, resamples=0)
        html = (tmp_path / "report.html").read_text()
        document = json.loads(re.search(r'id="study">(.*?)</script>', html, re.DOTALL)[1])
        models = document["images"][0]["models"]
        drawn = {name: len(models[name]["clean"]["r"][0]["b"]) for name in models}
        assert drawn == {GOOD: 2 if len(objects) else 0, BAD: 0}


def test_a_name_cannot_leave_its_place(tmp_path):
    found = study(tmp_path)
    evil = "</script><script>document.title='owned'</script>"
    settings = found.settings
    renamed = settings.model_copy(
        update={
            "models": tuple(
                m.model_copy(update={"label": evil if m.label == BAD else GOOD}) for m in settings.models
            )
        }
    )
    renames = {BAD: evil, f"from {BAD}": f"from {evil}"}
    tables = {name: getattr(found, name).replace(renames) for name in ("images", "objects", "attacks")}
    write_report(
        dataclasses.replace(found, settings=renamed, weights={GOOD: "a", evil: "b"}, **tables),
        tmp_path,
        resamples=0,
    )
    html = (tmp_path / "report.html").read_text()
    assert "</script><script>document" not in html
