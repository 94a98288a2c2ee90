"""Assessments that several processes share are those of one process, and images of one cache."""

from __future__ import annotations

import pytest

from sticker_uq.calibration.making import assess_sources
from sticker_uq.io.coco import write_coco
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.perception import PerceptionSettings

SETTINGS = PerceptionSettings(passes=3, device="cpu")


@pytest.fixture
def source(tmp_path):
    made = ((seed, render(sample_scene(seed, stickers=1), (240, 180))) for seed in range(4))
    write_coco(tmp_path / "data", (encode_scene(seed, scene, "png") for seed, scene in made))
    return LabelledSource(tmp_path / "data")


def test_two_processes_assess_as_one(source, tmp_path):
    counted = []

    def assessed(name, jobs):
        (found,) = assess_sources(
            [source], SETTINGS, tmp_path / name, lambda: counted.append(name), jobs=jobs
        )
        return [(record.name, record.assessment.digest) for record in found.records], found.fingerprint

    alone = assessed("one.sqlite", 1)
    assert assessed("two.sqlite", 2) == alone
    assert counted == ["one.sqlite"] * 4 + ["two.sqlite"] * 4
    assert assessed("two.sqlite", 1) == alone, "and from the cache"
