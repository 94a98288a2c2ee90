# SPDX-License-Identifier: Apache-2.0
"""Whole assessments of systems whose answers are known: resumed after a kill, the same with any number of processes."""

import json
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.lab.robustness.answering import AnswerLog, answer_all
from sticker_uq.lab.robustness.assessment_run import ANSWERS, Plan, Prepared, assess, prepare
from sticker_uq.lab.robustness.evaluating import first_break
from sticker_uq.lab.robustness.frequencies import SourceSet
from sticker_uq.lab.robustness.result import RESULT, Assessment
from sticker_uq.lab.robustness.verdicts import Finding
from sticker_uq.scene import InvalidInput
from test.lab.robustness.conftest import specification_of
from test.lab.robustness.scripted import Scripted

SPEC = specification_of(
    {
        "name": "blur",
        "transformation": "defocus",
        "strength": [1, 4],
        "probability": 0.4,
        "severity": 3,
        "sweep": [1, 3],
    },
    {
        "name": "dark",
        "transformation": "low_light",
        "strength": [2, 5],
        "probability": 0.3,
        "severity": 5,
        "sweep": [1, 5],
    },
    resamples=100,
    distance="ssim",
)
PLAN = Plan(images=4, target=6, sweep_images=3)


@pytest.fixture(scope="module")
def prepared(source: SourceSet, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Prepared]:
    folder = tmp_path_factory.mktemp("assessment")
    return folder, prepare(SPEC, source, folder, PLAN)


def run(
    prepared: tuple[Path, Prepared], folder: Path, jobs: int = 1, system: Scripted | None = None
) -> Assessment:
    return assess(SPEC, prepared[1], folder, system or Scripted(), Scripted, jobs=jobs)


@pytest.fixture(scope="module")
def alone(prepared: tuple[Path, Prepared], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an assessment in one process."""
    folder = tmp_path_factory.mktemp("alone")
    run(prepared, folder)
    return folder


def test_an_assessment_says_everything(alone: Path) -> None:
    found = Assessment.load(alone)
    assert {(s.kind, s.circumstance) for s in found.sets} == {
        ("source", ""),
        ("target", ""),
        ("circumstance", "blur"),
        ("circumstance", "dark"),
        ("sweep", "blur"),
        ("sweep", "dark"),
    }
    dark = found.set_named("circumstance", "dark")
    assert dark is not None
    assert dark.figures["failures"] > 0
    assert dark.figures["left_to_person"] > 0
    assert {c.circumstance for c in found.checks} == {"all", "blur", "dark"}
    assert {c.reason for c in found.checks} <= {
        "fewer than 10 source images",
        "there is nothing to measure it on",
    }
    assert found.finding is Finding.UNDECIDED
    assert {s.circumstance for s in found.sweeps} == {"blur", "dark"}
    assert json.loads((alone / RESULT).read_text())["sets"][0]["strength"] == "NaN"


def test_a_killed_run_goes_on_where_it_was(
    prepared: tuple[Path, Prepared], alone: Path, tmp_path: Path
) -> None:
    asked = tmp_path / "asked.txt"
    with pytest.raises(KeyboardInterrupt):
        run(prepared, tmp_path, system=Scripted(asked, patience=7))
    run(prepared, tmp_path, system=Scripted(asked))
    keys = asked.read_text().splitlines()
    assert len(keys) == len(set(keys)) == len({q.key for q in prepared[1].questions()})
    assert (tmp_path / RESULT).read_bytes() == (alone / RESULT).read_bytes()


@pytest.mark.timeout(600)  # starting processes takes long on a busy machine
def test_processes_do_not_change_the_result(
    prepared: tuple[Path, Prepared], alone: Path, tmp_path: Path
) -> None:
    run(prepared, tmp_path, jobs=2)
    assert (tmp_path / RESULT).read_bytes() == (alone / RESULT).read_bytes()


def test_answers_of_another_system_are_not_mixed_in(prepared: tuple[Path, Prepared], tmp_path: Path) -> None:
    log = AnswerLog(tmp_path / ANSWERS, "scripted 0")
    answer_all(prepared[1].questions()[:1], log, Scripted)
    with pytest.raises(InvalidInput, match="another system"):
        run(prepared, tmp_path)


def test_a_distance_that_the_system_does_not_give_is_refused(
    prepared: tuple[Path, Prepared], tmp_path: Path
) -> None:
    class Black(Scripted):
        def answer(self, image: np.ndarray, key: str):  # type: ignore[no-untyped-def]
            answer = super().answer(image, key)
            return type(answer)(answer.detections, answer.action, None, answer.failure)

    spec = SPEC.model_copy(update={"distance": "fid"})
    with pytest.raises(InvalidInput, match="choose one of mse, psnr, ssim, cw_ssim"):
        assess(spec, prepared[1], tmp_path, Black(), Black)
    assert not (tmp_path / RESULT).exists()


@pytest.mark.parametrize(
    ("difference", "allowed", "expected"),
    [
        ([0.0, 0.0, 0.1, 0.3], [0.2] * 4, 2.5),
        ([0.5, 0.5, 0.5], [0.2] * 3, 0.0),
        ([0.0, 0.1, 0.1], [0.2] * 3, np.inf),
        ([0.0, 0.4, 0.0, 0.4], [0.3] * 4, 2 + 0.5),  # one wiggle is no break: 0, 0.2, 0.2, 0.4
        ([0.0, np.nan, 0.4], [0.1] * 3, 1.25),
    ],
)
def test_the_first_break(difference: list[float], allowed: list[float], expected: float) -> None:
    assert first_break(np.array(difference), np.array(allowed)) == pytest.approx(expected)
