# SPDX-License-Identifier: Apache-2.0
"""The simulated cell counts what really happens to its laptops."""

import numpy as np
import pytest

from sticker_uq.evaluation.metrics.decisions import harmful
from sticker_uq.gate.relief import height_mm
from sticker_uq.gate.state import Relief
from sticker_uq.scene import ObjectClass
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.simulation.simulated_cell import CONDITIONS, SimulatedCell, SimulationSettings, Touch

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
    assert (cell.record.wrong, cell.record.removed) == (2, 0)
    assert [thing.kind for thing in cell.record.touched] == ["logo", "lid"]


def test_the_person_knows_what_lies_there_and_what_was_missed(cell):
    sticker, logo = _box(cell, ObjectClass.STICKER), _box(cell, ObjectClass.LOGO)
    places = [sticker, logo, np.array([0.0, 0.0, 4.0, 4.0])]
    assert [cell.touch(box)[0] for box in places] == [Touch.STICKER, Touch.LOGO, Touch.LID]
    stickers = int((cell._truth.labels == ObjectClass.STICKER).sum())
    assert len(cell.missed_stickers([])) == stickers
    assert len(cell.missed_stickers([sticker])) == stickers - 1


def test_laptops_follow_each_other_until_the_cell_is_empty(cell):
    first = cell.record.workpiece_id
    assert cell.hand_over() is True
    assert cell.record.workpiece_id != first
    assert not cell.is_finished
    assert cell.hand_over() is False
    assert cell.is_finished


@pytest.fixture(scope="module")
def hard():
    """Hard laptops, one of each condition, by condition."""
    settings = SimulationSettings(hard=True, seed=3, **SMALL)
    cells = [SimulatedCell(settings, first) for first in range(len(CONDITIONS))]
    return {cell.record.condition: cell for cell in cells}


def test_hard_laptops_differ_in_what_is_hard_and_all_have_a_sticker(hard):
    assert set(hard) == set(CONDITIONS)
    assert all(cell.record.stickers for cell in hard.values())
    kinds = {name: {thing.kind for thing in cell.record.things} for name, cell in hard.items()}
    assert "print" in kinds["print"]
    assert "residue" in kinds["residue"]
    assert "foreign object" in kinds["foreign objects"]
    assert kinds["plain"] <= {"sticker", "logo"}


@pytest.mark.parametrize("condition", ["print", "residue", "foreign objects"])
def test_what_is_no_sticker_stays_in_the_picture_and_is_known_when_touched(hard, condition):
    cell = hard[condition]
    thing = next(t for t in cell.record.things if t.kind not in ("sticker", "logo"))
    x1, y1, x2, y2 = map(int, thing.box)
    before = cell._truth.image[y1:y2, x1:x2].copy()
    assert cell.peel(np.array(thing.box)) is Touch(thing.kind)
    stickers = [t for t in cell.record.things if t.kind == "sticker"]
    apart = [t for t in stickers if iou_matrix(np.array([t.box]), np.array([thing.box]))[0, 0] == 0]
    for sticker in apart:
        assert cell.peel(np.array(sticker.box)) is Touch.STICKER
    assert np.abs(cell._truth.image[y1:y2, x1:x2].astype(int) - before).mean() < 12
    assert (cell.record.removed, cell.record.wrong) == (len(apart), 1)


def test_a_logo_that_is_peeled_with_its_sticker_is_damage(hard):
    cell = hard["sticker on a logo"]
    logo = next(one for one in cell._visible() if one.kind == "logo")
    sticker = max(
        (one for one in cell._visible() if one.kind == "sticker"),
        key=lambda one: iou_matrix(np.array([one.box]), np.array([logo.box]))[0, 0],
    )
    whole = np.array([*np.minimum(sticker.box, logo.box)[:2], *np.maximum(sticker.box, logo.box)[2:]])
    grown = next(
        box
        for share in np.linspace(0, 1, 50)
        for box in [np.array(sticker.box) + share * (whole - sticker.box)]
        if harmful(box[None], cell._truth.boxes, cell._truth.labels)[0]
    )
    assert cell.touch(grown)[0] is Touch.STICKER
    before = cell.record.wrong, cell.record.removed
    assert cell.peel(grown) is Touch.STICKER
    assert (cell.record.wrong, cell.record.removed) == (before[0] + 1, before[1] + 1)
    assert (cell.record.touched[-1].kind, cell.record.touched[-1].id) == ("logo", logo.id)


def test_a_sticker_stands_out_of_the_relief_and_a_print_does_not():
    cell = SimulatedCell(SimulationSettings(hard=True, **SMALL), CONDITIONS.index("print"))
    relief = Relief(0, "camera", cell.relief())
    kinds = {"sticker": [], "print": []}
    for thing in cell.record.things:
        kinds.get(thing.kind, []).append(height_mm(relief, thing.box))
    assert np.abs(kinds["print"]).max() < 0.05
    assert np.median(kinds["sticker"]) > 0.05
    assert np.isnan(SimulatedCell(SimulationSettings(relief_failure_rate=1.0, **SMALL)).relief()).all()
