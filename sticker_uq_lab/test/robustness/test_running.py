# SPDX-License-Identifier: Apache-2.0
"""Whole assessments of a system whose answers are known, the same with any number of processes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab_helpers.robustness import specification_of
from lab_helpers.scripted import Scripted
from sticker_uq.io.images import Picture
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.robustness.assessment import RESULT, Assessment, Prepared, assess, prepare
from sticker_uq_lab.robustness.frequencies import SourceSet
from sticker_uq_lab.robustness.systems import SystemAnswer
from sticker_uq_lab.robustness.verdicts import Finding

SPEC = specification_of(
    {"name": "blur", "transformation": "defocus", "strength": [1, 4], "probability": 0.4, "severity": 3},
    {"name": "dark", "transformation": "low_light", "strength": [2, 5], "probability": 0.3, "severity": 5},
    resamples=100,
    distance="ssim",
)


@pytest.fixture(scope="module")
def prepared(source: SourceSet, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(SPEC, source, tmp_path_factory.mktemp("assessment"), images=4, target=6)


@pytest.fixture(scope="module")
def alone(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> tuple[Assessment, Path]:
    """An assessment in one process, and its folder."""
    folder = tmp_path_factory.mktemp("alone")
    return assess(SPEC, prepared, folder, Scripted), folder


def test_an_assessment_says_everything(alone):
    found, folder = alone
    assert [(s.kind, s.circumstance) for s in found.sets] == [
        ("source", ""),
        ("target", ""),
        ("circumstance", "dark"),
        ("circumstance", "blur"),
    ]
    dark = found.sets[2]
    assert dark.figures["failures"] > 0
    assert dark.figures["left_to_person"] > 0
    assert set(found.sets[3].distances) >= {"psnr", "cw_ssim", "fid", "cosine", "linkage_centroid"}
    assert {c.circumstance for c in found.checks} == {"all", "blur", "dark"}
    assert {c.reason for c in found.checks} <= {
        "fewer than 10 source images",
        "there is nothing to measure it on",
    }
    assert found.finding is Finding.UNDECIDED
    assert json.loads((folder / RESULT).read_text())["finding"] == "undecided"


@pytest.mark.timeout(600)  # starting processes takes long on a busy machine
def test_processes_do_not_change_the_result(prepared, alone, tmp_path):
    assess(SPEC, prepared, tmp_path, Scripted, jobs=2)
    assert (tmp_path / RESULT).read_bytes() == (alone[1] / RESULT).read_bytes()


def test_a_distance_that_the_system_does_not_give_is_refused(prepared, tmp_path):
    class Black(Scripted):
        def answer(self, image: Picture, path: Path = Path()) -> SystemAnswer:
            return replace(super().answer(image), features=None)

    spec = SPEC.model_copy(update={"distance": "fid"})
    with pytest.raises(InvalidInput, match="choose one of mse, psnr, ssim, cw_ssim"):
        assess(spec, prepared, tmp_path, Black)
    assert not (tmp_path / RESULT).exists()
