# SPDX-License-Identifier: Apache-2.0
"""What the demo says of a score threshold and of the gate follows from what the arm met."""

from dataclasses import replace

import pytest

from sticker_uq_lab.simulation.comparison import MOST_PICTURES, Ledger, compare
from sticker_uq_lab.simulation.simulated_cell import LaptopRecord, SimulationSettings, Thing

SETTINGS = SimulationSettings(hard=True, laptops=1, width_px=320, height_px=240)
STICKER = Thing("sticker", 1, (10.0, 10.0, 60.0, 60.0))
LOGO = Thing("logo", 2, (100.0, 100.0, 160.0, 140.0))
PRINT = Thing("print", 3, (200.0, 100.0, 260.0, 150.0))
LID = Thing("lid", -1, (0.0, 200.0, 30.0, 230.0))
LAPTOP = LaptopRecord("laptop-7-1", 7, "print", [STICKER, LOGO, PRINT], handed_over=True)


def peeled(*things):
    return replace(LAPTOP, touched=list(things))


def test_a_ledger_counts_what_removals_met():
    ledger = Ledger.of([peeled(STICKER, LOGO, PRINT, LID, LID), peeled(STICKER)], [0, 2])
    assert (ledger.logos, ledger.others, ledger.lid, ledger.wrong) == (1, 1, 2, 4)
    assert (ledger.stickers, ledger.removed, ledger.left) == (2, 2, 0)
    assert (ledger.right, ledger.unattended, ledger.questions) == (1, 0, 2)


@pytest.mark.parametrize("gate_is_better", [True, False])
def test_every_difference_is_told_whoever_was_wrong(gate_is_better):
    good, bad = peeled(STICKER), peeled(PRINT, LID)
    pair = ([bad], [good]) if gate_is_better else ([good], [bad])
    comparison = compare(*pair, [None], 0.5, 0.5)
    assert [one.thing for one in comparison.differences] == [STICKER, PRINT, LID]
    wrong = [(one.score if gate_is_better else one.gate) for one in comparison.differences]
    assert wrong == ["left on the laptop", "attacked", "attacked"]
    worse, better = (comparison.score, comparison.gate)[:: 1 if gate_is_better else -1]
    assert (worse.wrong, worse.left, better.wrong, better.left) == (2, 1, 0, 0)
    assert "2 wrong places and left 1 sticker" in comparison.headline.replace(", left", " and left")
    [section] = comparison.sections(SETTINGS)
    assert [caption.split(".")[0] for caption, _ in section.pictures] == [
        "Laptop 1, sticker",
        "Laptop 1, print",
        "Laptop 1, lid",
    ]
    assert {picture.shape for _, picture in section.pictures} == {(360, 480, 3)}


def test_many_differences_are_folded_and_none_is_said_to_be_none():
    lids = [replace(LID, box=(float(i), 0.0, i + 9.0, 9.0)) for i in range(MOST_PICTURES + 2)]
    shown, folded = compare([peeled(STICKER, *lids)], [peeled(STICKER)], [None], 0.5, 0.5).sections(SETTINGS)
    assert (len(shown.pictures), len(folded.rows), folded.folded) == (MOST_PICTURES, 2, True)
    [none] = compare([peeled(STICKER)], [peeled(STICKER)], [None], 0.5, 0.5).sections(SETTINGS)
    assert none.note.startswith("Nowhere")
