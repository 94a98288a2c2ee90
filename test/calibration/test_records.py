# SPDX-License-Identifier: Apache-2.0
"""Labelled images from folders and recordings, their assessments from the cache, and the command that ties it together."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.calibration.making import refuse_repeated
from sticker_uq.calibration.records import Assessed, Record, assess
from sticker_uq.evaluation.replay.assessing import assessment_from_plain, assessment_to_plain
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.perception.pipeline import image_digest
from sticker_uq.scene import Exposure, InvalidInput, Localization, SceneAssessment, Status, UnexplainedRegion
from sticker_uq.testing.scenes import assessment, object_at, rarely_seen
from test.helpers.laptops import data_set


class CountingDetector:
    """Assesses an image as one sticker whose place follows from the pixels."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, images: ImageSource) -> Iterator[tuple[SourceImage, SceneAssessment]]:
        for item in images:
            self.calls += 1
            edge = float(item.image.mean())
            scene = assessment(object_at((edge, 0, edge + 30, 30)), image_digest=image_digest(item.image))
            yield item, replace(scene, stamp_ns=item.stamp_ns, frame_id=item.frame_id)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return data_set(tmp_path / "data", 4)


def test_an_assessment_survives_the_cache(tmp_path):
    region = UnexplainedRegion(np.array([1, 2, 3, 4], np.float32), 0.25, 0.5)
    scene = assessment(replace(object_at(), novelty=0.25), unstable=[rarely_seen()], timings={"total": 3.0})
    scene = replace(scene, exposure=Exposure(100.0, 0.25, 0.125, 2.0, 12.0))
    scene = replace(scene, localization=Localization(4.0, 1.0, 0.25, 0.4, None, 0.125, (region,), 0.5))
    with JsonStore(tmp_path / "deep" / "cache.sqlite") as cache:
        assert cache.get("a") is None
        cache.put({"a": assessment_to_plain(scene)})
    with JsonStore(tmp_path / "deep" / "cache.sqlite") as cache:
        again = assessment_from_plain(cache.get("a"))
    assert again.digest == scene.digest
    assert again.exposure == scene.exposure
    assert again.localization is not None
    assert again.objects[0].box.dtype == np.float32
    (tmp_path / "other").write_text("this is not a database at all, not in the least")
    with pytest.raises(InvalidInput, match="other"):
        JsonStore(tmp_path / "other")


def test_only_what_is_new_is_assessed(folder, tmp_path):
    detector = CountingDetector()
    with JsonStore(tmp_path / "cache.sqlite") as cache:
        first = assess(LabelledSource(folder), detector, cache, "model")
        assert detector.calls == 4
        second = assess(LabelledSource(folder), detector, cache, "model")
        assert detector.calls == 4
        assert [r.assessment.digest for r in first.records] == [r.assessment.digest for r in second.records]
        assert first.fingerprint == second.fingerprint
        assess(LabelledSource(folder), detector, cache, "another model")
        assert detector.calls == 8
        document = json.loads((folder / "annotations.json").read_text())
        document["annotations"][0]["category_id"] = 3 - document["annotations"][0]["category_id"]
        (folder / "annotations.json").write_text(json.dumps(document))
        relabelled = assess(LabelledSource(folder), detector, cache, "model")
        assert detector.calls == 8
        assert relabelled.fingerprint != first.fingerprint


def test_what_cannot_be_read_or_assessed_is_named(folder, tmp_path):
    def failing(images: ImageSource) -> Iterator[tuple[SourceImage, SceneAssessment]]:
        for item in images:
            yield item, assessment(status=Status.FAILED, status_text="the output is NaN")

    with JsonStore(tmp_path / "cache.sqlite") as cache:
        with pytest.raises(InvalidInput, match=r"00000000: the output is NaN"):
            assess(LabelledSource(folder), failing, cache, "model")
        (folder / "images" / "00000002.jpg").write_bytes(b"no picture")
        with pytest.raises(InvalidInput, match="00000002"):
            assess(LabelledSource(folder), CountingDetector(), cache, "model")
    with pytest.raises(InvalidInput, match=r"annotations\.json"):
        LabelledSource(tmp_path)


class _Recording(ImageSource):
    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[SourceImage]:
        for number in range(3):
            yield SourceImage(np.full((8, 8, 3), number, np.uint8), number, "camera", f"{number:06d}")


def test_a_recording_is_labelled_by_the_numbers_of_its_images(tmp_path, monkeypatch):
    (tmp_path / "metadata.yaml").write_text("")
    monkeypatch.setattr("sticker_uq.io.labelled_images.read_workpieces", lambda path: ())
    monkeypatch.setattr("sticker_uq.io.labelled_images.open_source", lambda path, topic: _Recording())
    document = {
        "categories": [{"id": 7, "name": "Sticker"}],
        "images": [{"id": 1, "file_name": "000002.jpg", "width": 8, "height": 8}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 7, "bbox": [1, 1, 4, 4]}],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    with JsonStore(tmp_path / "cache.sqlite") as cache:
        found = assess(LabelledSource(tmp_path), CountingDetector(), cache, "model")
    (record,) = found.records
    assert (record.name, record.stickers.tolist()) == ("000002", [[1, 1, 5, 5]])
    for change, message in (
        ({"width": 9}, "image 000002 is 8x8 px, expected 9x8 as labelled"),
        ({"file_name": "000009.jpg"}, "names 1 images, but the recording has 0"),
    ):
        document["images"][0].update(change)
        (tmp_path / "annotations.json").write_text(json.dumps(document))
        with JsonStore(tmp_path / "cache.sqlite") as cache, pytest.raises(InvalidInput, match=message):
            assess(LabelledSource(tmp_path), CountingDetector(), cache, "model")


def test_an_image_that_counts_twice_is_refused():
    def part(source: str, *digests: str) -> Assessed:
        nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
        scenes = [assessment(image_digest=digest) for digest in digests]
        return Assessed(source, tuple(Record(f"{i}", *nothing, s) for i, s in enumerate(scenes)), "f")

    refuse_repeated([part("a", "one", "two"), part("b", "three")])
    with pytest.raises(InvalidInput, match="image 1 of b has the same pixels as 0 of a"):
        refuse_repeated([part("a", "one", "two"), part("b", "three", "one")])
