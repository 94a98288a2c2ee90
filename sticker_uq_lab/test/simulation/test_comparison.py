# SPDX-License-Identifier: Apache-2.0
"""What the demo says of a score threshold and of the gate follows from what the arm met."""

from dataclasses import replace

import pytest
from PIL import Image

from sticker_uq.evaluation.annotated_images import write_animation
from sticker_uq.evaluation.replay.recording import AskedPerson, RecordedLaptop
from sticker_uq.gate import judge
from sticker_uq.testing.scenes import assessment, object_at
from sticker_uq_lab.simulation.comparison import MOST_PICTURES, Ledger, compare
from sticker_uq_lab.simulation.simulated_cell import LaptopRecord, SimulationSettings, Thing
from test.helpers.witness import POLICY

SETTINGS = SimulationSettings(hard=True, laptops=1, width_px=320, height_px=240)
STICKER = Thing("sticker", 1, (10.0, 10.0, 60.0, 60.0))
LOGO = Thing("logo", 2, (100.0, 100.0, 160.0, 140.0))
PRINT = Thing("print", 3, (200.0, 100.0, 260.0, 150.0))
LID = Thing("lid", -1, (0.0, 200.0, 30.0, 230.0))
LAPTOP = LaptopRecord("laptop-7-1", 7, "print", [STICKER, LOGO, PRINT], handed_over=True)


def peeled(*things):
    return replace(LAPTOP, touched=list(things))


def ask_about(thing):
    """The recording of a laptop about whose ``thing`` a person was asked."""
    decision = judge(assessment(object_at(thing.box, shannon_entropy=1.5)), POLICY)
    question = AskedPerson(2, "", decision.decision_id)
    return RecordedLaptop("laptop-7-1", 1, decisions={decision.decision_id: decision}, questions=[question])


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


def test_what_both_got_wrong_is_pictured():
    comparison = compare([peeled(PRINT)], [peeled(STICKER, PRINT)], [None], 0.5, 0.5)
    assert [one.thing for one in comparison.both_wrong] == [PRINT]
    differ, both = comparison.sections(SETTINGS)
    assert [section.title for section in (differ, both)] == ["Where they differ", "What both got wrong"]
    assert [caption for caption, _ in both.pictures] == [
        "Laptop 1, print. Score threshold: attacked. Gate: attacked."
    ]


@pytest.mark.parametrize("missed", [False, True])
def test_the_animation_shows_both_and_ends_on_the_truth(missed, tmp_path):
    hidden = Thing("sticker", 9, (0.0,) * 4)  # below another one: of it there is no picture
    laptop = replace(LAPTOP, things=[*LAPTOP.things, hidden])
    asked = ask_about(STICKER)
    gate = replace(laptop, touched=[hidden] if missed else [STICKER, hidden])
    shots = compare([replace(laptop, touched=[LOGO])], [gate], [asked], 0.5, 0.5).shots(SETTINGS)
    titles = [shot.title for shot in shots]
    assert titles[0] == "1 laptop, 2 stickers: which may be peeled?"
    assert ("missed: 1 of 2 stickers" in titles) == missed
    assert dict(zip(titles, shots, strict=True))["no sticker: left alone"].lanes == (
        (("harmed: logo", True),),
        (("left alone", False),),
    )
    question = dict(zip(titles, shots, strict=True))["not sure: a person is asked"]
    assert question.lanes[1][0] == ("asked: is this a sticker?", None)
    score, end = shots[-1].lanes
    assert score[0] == ("1 wrong place", True)
    assert end == (("0 wrong places", False), (f"{int(missed)} of 2 missed", missed), ("1 question", None))
    write_animation(shots, tmp_path / "a.webp")
    with Image.open(tmp_path / "a.webp") as animation:
        assert animation.n_frames == len(shots)
