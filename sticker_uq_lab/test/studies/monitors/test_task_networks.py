# SPDX-License-Identifier: Apache-2.0
"""Networks trained for a decision: their labels, the comparison with a probability, the cascade."""

import re

import numpy as np
import pytest

from sticker_uq.perception.monitors.crop_network import CropTraining, class_vectors, train_classifier
from sticker_uq_lab.studies.monitors.material import Material, cell_material
from sticker_uq_lab.studies.monitors.task_networks import (
    KERNELS,
    THRESHOLDS,
    LabelledCrops,
    TaskScores,
    actions,
    blur_labels,
    cascades,
    rate_table,
    rates_at,
    run_tasks,
    task_report,
    train_and_score,
)

QUICK = CropTraining(epochs=25, batch=32, learning_rate=3e-3)


@pytest.fixture(scope="module")
def cell() -> Material:
    return cell_material(12, seed=60)


def brightness(count: int, seed: int) -> LabelledCrops:
    """Grey crops whose probability is their brightness."""
    rng = np.random.default_rng(seed)
    probabilities = rng.uniform(0, 1, count)
    crops = np.clip(probabilities[:, None, None, None] + rng.normal(0, 0.02, (count, 1, 8, 8)), 0, 1)
    return LabelledCrops(crops.astype(np.float32), probabilities, np.arange(count))


def scores_of(truth: list[float], task: list[list[float]], probabilistic: list[float]) -> TaskScores:
    return TaskScores(
        np.array(truth), np.arange(len(truth)), np.array([task]), np.array([probabilistic], np.float64)
    )


def test_blur_labels_are_those_of_the_paper(cell):
    training, testing = blur_labels(cell)
    sharp = len(cell.train)
    assert len(training.crops) == sharp * len(KERNELS)
    stickers = cell.train_labels == 2
    levels = training.probabilities.reshape(len(KERNELS), sharp)
    assert [set(level[stickers]) for level in levels] == [{1.0}, {0.9}, {0.7}, {0.5}]
    assert [set(level[~stickers]) for level in levels] == [{0.0}, {0.1}, {0.2}, {0.3}]
    assert training.sources.max() == sharp - 1
    assert np.array_equal(training.crops[:sharp], cell.train)
    contrast = training.crops.reshape(len(KERNELS), -1, *cell.train.shape[2:]).std(axis=(2, 3)).mean(axis=1)
    assert (np.diff(contrast) < 0).all()
    assert len(testing.crops) == len(cell.test) * len(KERNELS)


def test_networks_learn_their_thresholds_and_share_all_but_labels():
    training, testing = brightness(96, 0), brightness(96, 1)
    task, probabilistic = train_and_score(training, testing.crops, 5, QUICK)
    scores = TaskScores(testing.probabilities, testing.sources, task[None], probabilistic[None])
    for threshold in (0.3, 0.5, 0.7):
        row = rates_at(scores, threshold)
        assert max(row["task_fnr"], row["task_fpr"]) < 0.25
        assert row["task_auc"] > 0.95
        assert row["probabilistic_auc"] > 0.95
        assert row["task_fnr_low"] <= row["task_fnr"] <= row["task_fnr_high"]
    # a yes at a low threshold is rarer at a high one
    assert (task[0] > 0.5).mean() > (task[8] > 0.5).mean() + 0.3
    labels = (training.probabilities > 0.4).astype(np.float64)
    alone = train_classifier(training.crops, np.column_stack([1 - labels, labels]), 5, QUICK)
    assert np.array_equal(class_vectors(alone, testing.crops)[:, 1], task[3])


def test_rates_by_hand():
    truth = [0.95, 0.85, 0.5, 0.2, 0.0]
    task = [[0.9, 0.1, 0.2, 0.6, 0.3]] * 9
    row = rates_at(scores_of(truth, task, [0.9, 0.8, 0.7, 0.1, 0.0]), 0.7)
    assert row["above"] == pytest.approx(0.4)
    assert row["task_fnr"] == pytest.approx(1 / 2)
    assert row["task_fpr"] == pytest.approx(1 / 3)
    assert (row["probabilistic_fnr"], row["probabilistic_fpr"]) == (0, 0)  # 0.7 is not above 0.7
    assert row["difference"] == pytest.approx(5 / 12)
    assert row["probabilistic_auc"] == 1
    nobody = rates_at(scores_of([0.1, 0.2], [[0.1, 0.9]] * 9, [0.1, 0.9]), 0.5)
    assert np.isnan([nobody[f"task_fnr{end}"] for end in ("", "_low", "_high")]).all()
    assert nobody["task_fpr"] == 0.5


def test_the_cascade():
    taken = actions(np.array([False, True, True, False]), np.array([False, False, True, True]))
    assert taken.tolist() == [0, 1, 2, 2]
    task = np.full((9, 4), 0.1)
    task[THRESHOLDS.index(0.3)] = [0.1, 0.9, 0.9, 0.1]
    task[THRESHOLDS.index(0.7)] = [0.1, 0.1, 0.9, 0.9]
    of_task, of_probability = cascades(scores_of([0.0, 0.5, 0.9, 0.1], task.tolist(), [0.2, 0.4, 0.2, 0.3]))
    assert of_task.right.value == pytest.approx(3 / 4)
    assert of_task.damaged.value == pytest.approx(1 / 2)
    assert (of_task.left.value, of_task.asked.value, of_task.contradicting) == (0, 0.25, 0.25)
    assert (of_probability.right.value, of_probability.left.value) == (pytest.approx(3 / 4), 1)
    assert of_probability.contradicting == 0


def test_a_study_of_tasks_and_its_tables(cell):
    found = run_tasks(cell, 1, CropTraining(epochs=3))
    # there is no label between 0.3 and 0.4: one network
    assert np.array_equal(found.task[:, 2], found.task[:, 3])
    rates = rate_table(found)
    assert list(rates["threshold"]) == list(THRESHOLDS)
    assert (rates["task_fnr_low"] <= rates["task_fnr"]).all()
    text = task_report("cell", found, rates)
    assert text.count("| task |") == 1
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1
