# SPDX-License-Identifier: Apache-2.0
"""The simulated cell counts what really happens to its laptops."""

import json

import numpy as np
import pytest

from sticker_uq.scene import ObjectClass
from sticker_uq.simulation.simulated_cell import LaptopRecord, SimulatedCell, SimulationSettings, Touch
from sticker_uq.uncertainty import iou_matrix

SMALL = {"width_px": 320, "height_px": 240}


@pytest.fixture
def cell():
    """A laptop with at least two stickers and a logo."""
    for seed in range(100):
        cell = SimulatedCell(SimulationSettings(seed=seed, laptops=2, **SMALL))
        labels = cell._truth.labels.tolist()
        if labels.count(ObjectClass.STICKER) >= 2 and ObjectClass.LOGO in labels:
            return cell
    raise AssertionError("no such laptop among 100")


def _box(cell, label):
    return cell._truth.boxes[cell._truth.labels == label][0]


def test_pictures_differ_only_by_the_sensor_noise(cell):
    first, second = cell.picture(), cell.picture()
    assert first.shape == (240, 320, 3)
    assert not np.array_equal(first, second)
    assert np.abs(first.astype(int) - second).max() <= 6


def test_a_peeled_sticker_leaves_the_picture_and_is_counted(cell):
    box = _box(cell, ObjectClass.STICKER)
    before, left = cell.picture(), cell.record.left
    assert cell.peel(box) is Touch.STICKER
    assert cell.record.left == left - 1
    x1, y1, x2, y2 = box.astype(int)
    changed = np.abs(before.astype(int) - cell.picture())[y1:y2, x1:x2]
    assert changed.max() > 20


def test_touching_anything_else_is_counted_as_damage(cell):
    assert cell.peel(_box(cell, ObjectClass.LOGO)) is Touch.LOGO
    assert cell.peel(np.array([0.0, 0.0, 4.0, 4.0])) is Touch.LID
    assert (cell.record.logos_touched, cell.record.lid_touched, cell.record.removed) == (1, 1, 0)


def test_the_person_knows_what_lies_there_and_what_was_missed(cell):
    sticker, logo = _box(cell, ObjectClass.STICKER), _box(cell, ObjectClass.LOGO)
    answers = cell.answers_for([sticker, logo, np.array([0.0, 0.0, 4.0, 4.0])])
    assert [a.truth for a in answers] == [ObjectClass.STICKER, ObjectClass.LOGO, ObjectClass.BACKGROUND]
    stickers = int((cell._truth.labels == ObjectClass.STICKER).sum())
    assert len(cell.missed([])) == stickers
    assert len(cell.missed([sticker])) == stickers - 1


def test_laptops_follow_each_other_until_the_cell_is_empty(cell):
    first = cell.record.workpiece_id
    assert cell.hand_over() is True
    assert cell.record.workpiece_id != first
    assert not cell.finished
    assert cell.hand_over() is False
    assert cell.finished


def test_the_same_seed_gives_the_same_laptops():
    cells = [SimulatedCell(SimulationSettings(seed=3, laptops=2, **SMALL)) for _ in range(2)]
    for cell in cells:
        cell.hand_over()
    assert cells[0].records == cells[1].records
    assert np.array_equal(cells[0].picture(), cells[1].picture())


def test_hard_laptops_have_a_sticker_on_a_logo():
    overlapping = 0
    for seed in range(10):
        cell = SimulatedCell(SimulationSettings(seed=seed, hard=True, **SMALL))
        assert cell.record.stickers >= 2
        stickers, logos = (
            cell._truth.boxes[cell._truth.labels == label]
            for label in (ObjectClass.STICKER, ObjectClass.LOGO)
        )
        overlapping += bool(len(logos)) and bool((iou_matrix(stickers, logos) > 0).any())
    assert overlapping >= 8, "a logo may be covered altogether"


def test_failures_come_at_the_given_rate():
    assert not any(
        SimulatedCell(SimulationSettings(failure_rate=0.0, **SMALL)).motion_fails() for _ in range(3)
    )
    cell = SimulatedCell(SimulationSettings(failure_rate=0.3, **SMALL))
    assert 60 < sum(cell.motion_fails() for _ in range(300)) < 120


def test_the_record_is_written_whole(tmp_path):
    file = tmp_path / "record.json"
    cell = SimulatedCell(SimulationSettings(record_file=str(file), **SMALL))
    cell.write_record()
    assert [LaptopRecord(**record) for record in json.loads(file.read_text())] == cell.records
