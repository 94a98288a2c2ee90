# SPDX-License-Identifier: Apache-2.0
"""Systems under assessment: the packaged detector, and the cell with its gate."""

import numpy as np
import pytest

from sticker_uq.gate import Policy, judge
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.robustness.systems import CellSystem, DetectorSystem, act_on_decision

pytestmark = pytest.mark.usefixtures("small_packaged")

PICTURE = render(sample_scene(3), size=(480, 360)).image
SETTINGS = PerceptionSettings(passes=5, device="cpu")


def test_the_detector_answers_with_its_whole_precision_recall_curve():
    system = DetectorSystem(SETTINGS)
    answer = system.answer(PICTURE)
    assert answer.action is None
    assert not answer.failure
    assert answer.detections.scores.max() > 0.8
    assert answer.detections.scores.min() < 0.1
    assert answer.features.shape == (672,)
    assert np.isfinite(answer.features).all()
    assert system.answer(PICTURE[:, :, 0]).failure.startswith("image has shape")


def test_the_cell_answers_as_its_perception_and_policy_do():
    policy = Policy()
    answer = CellSystem(SETTINGS, policy).answer(PICTURE)
    assessment = Perception(SETTINGS).assess(PICTURE)
    expected = act_on_decision(judge(assessment, policy))
    assert len(answer.detections) == len(assessment.objects) > 0
    assert answer.action.removed.tolist() == expected.removed.tolist()
    assert (answer.action.asked, answer.action.clean) == (expected.asked, expected.clean)
    assert answer.features is not None
    assert np.array_equal(answer.features, DetectorSystem(SETTINGS).answer(PICTURE).features)
    assert CellSystem(SETTINGS, Policy(min_probability=0.9)).identity != CellSystem(SETTINGS, policy).identity
