# SPDX-License-Identifier: Apache-2.0
"""Systems under assessment: the packaged detector, the cell with its gate, and detections made elsewhere."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sticker_uq.gate import Policy, judge
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.lab.robustness.systems import CellSystem, DetectorSystem, ResultsSystem
from sticker_uq.lab.robustness.systems_interface import act_on_decision
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import InvalidInput

PICTURE = render(sample_scene(3), size=(480, 360)).image
SETTINGS = PerceptionSettings(passes=5, device="cpu")


def test_the_detector_answers_with_its_whole_precision_recall_curve() -> None:
    system = DetectorSystem(SETTINGS)
    answer = system.answer(PICTURE, "one")
    assert answer.action is None
    assert not answer.failure
    assert answer.detections.scores.max() > 0.8
    assert answer.detections.scores.min() < 0.1
    assert answer.features is not None
    assert answer.features.shape == (672,)
    assert np.isfinite(answer.features).all()
    assert system.answer(PICTURE[:, :, 0], "no picture").failure.startswith("image has shape")


def test_the_cell_answers_as_its_perception_and_policy_do() -> None:
    policy = Policy()
    answer = CellSystem(SETTINGS, policy).answer(PICTURE, "one")
    assessment = Perception(SETTINGS).assess(PICTURE)
    expected = act_on_decision(judge(assessment, policy))
    assert len(answer.detections) == len(assessment.objects) > 0
    assert answer.action is not None
    assert answer.action.removed.tolist() == expected.removed.tolist()
    assert (answer.action.asked, answer.action.clean) == (expected.asked, expected.clean)
    assert answer.features is not None
    assert np.array_equal(answer.features, DetectorSystem(SETTINGS).answer(PICTURE, "").features)  # type: ignore[arg-type]
    other = Policy(min_probability=0.9)
    assert CellSystem(SETTINGS, other).identity != CellSystem(SETTINGS, policy).identity


def results(tmp_path: Path, content: Any, name: str = "results.json") -> ResultsSystem:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return ResultsSystem([(path, {"one": 1, "two": 2}, {1, 2, 3})])


ENTRY = {"image_id": 1, "category_id": 2, "bbox": [10, 20, 30, 40], "score": 0.75}


def test_detections_made_elsewhere(tmp_path: Path) -> None:
    system = results(tmp_path, [ENTRY, {**ENTRY, "category_id": 1, "score": 1}, {**ENTRY, "image_id": 3}])
    found = system.answer(PICTURE, "one").detections
    assert found.boxes.tolist() == [[10, 20, 40, 60]] * 2
    assert found.probabilities.tolist() == [[0.25, 0, 0.75], [0, 1, 0]]
    assert len(system.answer(PICTURE, "two").detections) == 0
    assert not system.answer(PICTURE, "two").failure
    assert system.answer(PICTURE, "three").failure
    assert system.identity != results(tmp_path, [ENTRY], "other.json").identity


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ({}, "expected a list"),
        ([3], "entry 0: expected an object"),
        ([{**ENTRY, "image_id": 9}], "image_id 9 is not in the data set"),
        ([ENTRY, {**ENTRY, "category_id": 7}], "entry 1: category_id 7"),
        ([{**ENTRY, "bbox": [1, 2, 3]}], "bbox"),
        ([{**ENTRY, "bbox": [1, 2, -3, 4]}], "bbox"),
        ([{**ENTRY, "score": 1.5}], "score 1.5"),
        ([{**ENTRY, "score": None}], "score None"),
    ],
)
def test_what_is_wrong_with_results_is_named(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        results(tmp_path, content)
    with pytest.raises(InvalidInput, match="no such file"):
        ResultsSystem([(tmp_path / "none.json", {}, set())])
