# SPDX-License-Identifier: Apache-2.0
"""What the report of a study says and shows."""

import dataclasses
import re
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest

from sticker_uq.io.coco import EncodedScene, read_coco, write_coco
from sticker_uq.lab.studies.detectors.study_plan import ModelChoice, StudyData, StudySettings
from sticker_uq.lab.studies.detectors.study_report import write_report
from sticker_uq.lab.studies.detectors.study_run import Study, Work

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
        datasets=(StudyData.parse(f"lids={folder / 'data'}"),),
        rates=RATES,
        passes=5,
        adversarial=1,
    )
    plan = Study(settings, pd.DataFrame(), pd.DataFrame(), pd.DataFrame(), {GOOD: "a", BAD: "b"})
    items = read_coco(folder / "data")
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
            for variant in ("clean", "adv-00"):
                for rate in RATES:
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


def test_what_it_says_in_short(written):
    summary = (written / "summary.md").read_text()
    assert "| mAP ↑ | SE, bit ↓ |" in summary
    html = (written / "report.html").read_text()
    assert not re.search(r"""(src|href)=["']?http|url\(["']?http""", html)
    assert "<svg" in html
    for name in ("headline", "pairs", "attacks"):
        assert (written / "tables" / f"{name}.csv").is_file(), name


def test_without_any_object_there_is_a_report(tmp_path):
    found = study(tmp_path)
    assert f"{BAD} |" in write_report(
        dataclasses.replace(found, objects=found.objects[:0]), tmp_path, resamples=0
    )


def test_a_name_cannot_leave_its_place(tmp_path):
    found = study(tmp_path)
    evil = "</h3><script>document.title='owned'</script>"
    settings = found.settings
    renamed = settings.model_copy(
        update={
            "models": tuple(
                m.model_copy(update={"label": evil if m.label == BAD else GOOD}) for m in settings.models
            )
        }
    )
    tables = {name: getattr(found, name).replace({BAD: evil}) for name in ("images", "objects", "attacks")}
    write_report(
        dataclasses.replace(found, settings=renamed, weights={GOOD: "a", evil: "b"}, **tables),
        tmp_path,
        resamples=0,
    )
    html = (tmp_path / "report.html").read_text()
    assert "<script" not in html
