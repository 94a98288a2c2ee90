# SPDX-License-Identifier: Apache-2.0
"""The catalogue of messages: every code that the package uses has words, and the words come out right."""

import ast
from pathlib import Path

import pytest

import sticker_uq
from sticker_uq import messages
from sticker_uq.gate import BlockReason, Phase
from sticker_uq.gate.answers import Answer, SceneAnswer
from sticker_uq.gate.events import RemovalCode
from sticker_uq.messages import LOG_LINES, MESSAGES, gate_text, log_line, text_of, texts_of
from sticker_uq.scene import ObjectClass, Outcome, Reason, Verdict

ROOT = Path(sticker_uq.__file__).parent
MADE_OF_DATA = {"wrong_removal", "missed_sticker", *messages.BLOCK_REASONS}
"""Codes that are names of other enumerations: they are not written out where the reason is made."""


def codes_in(source: Path) -> set[str]:
    """The codes that a module gives to Reason(...), Reason.of(...) and the helpers that make reasons of a code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        makers = ("Reason", "Reason.of", "sc.Reason", "_other", "_NotKnown", "_against")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in makers and node.args:
            # of a condition the branches, not what it compares
            first = node.args[0]
            parts = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
            found |= {part.value for part in parts if isinstance(part, ast.Constant)}
    return found


def test_every_block_reason_has_words_and_advice_of_its_own():
    codes = [str(bit.name).lower() for bit in BlockReason if bit]
    assert sorted(messages.BLOCK_ADVICE) == sorted(messages.BLOCK_REASONS) == sorted(codes)
    assert len({*messages.BLOCK_ADVICE.values()}) == len(codes)


def test_every_code_has_words_and_all_words_are_used():
    used = {code for source in ROOT.rglob("*.py") for code in codes_in(source)}
    assert used <= {*MESSAGES, *LOG_LINES}
    named_elsewhere = {
        node.value
        for source in (*ROOT.rglob("gate/**/*.py"), *ROOT.rglob("nodes/**/*.py"))
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {*MESSAGES, *LOG_LINES} <= used | MADE_OF_DATA | named_elsewhere
    assert not MESSAGES.keys() & LOG_LINES.keys()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (messages.PHASES, Phase),
        (messages.VERDICTS, Verdict),
        (messages.OUTCOMES, Outcome),
        (messages.LABELS, ObjectClass),
        (messages.ERROR_CODES, RemovalCode),
        (messages.ANSWERS, Answer),
        (messages.SCENE_ANSWERS, SceneAnswer),
    ],
)
def test_every_enumeration_has_words_for_each_value(words, values):
    assert list(words) == [value.name.lower() for value in values]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason("held"), "held"),
        (Reason("above_limit", "shannon_entropy", 1.02, 0.9), "Shannon entropy 1.02 is above the limit 0.9"),
        (Reason("below_limit", "risk", 0.99991, 1.0), "risk of wrong removal 0.9999 is below the limit 1"),
        (Reason("monitor_objects", "mdsa", float("nan"), 2.0), "monitor mdsa objects: score not measured, limit 2"),
        (
            Reason("missed_place", "unexplained_objectness", 0.35, 0.1, box=(20.0, 30.4, 60.0, 80.0)),
            "a sticker may have been missed at x 20 to 60 px, y 30 to 80 px: "
            "objectness that no box explains 0.35, limit 0.1",
        ),
        (
            Reason.of("unfamiliar_scene", signal="noise", measured=14, low=0.7, high=6),
            "the scene is unlike those the policy was made from: image noise 14, usual 0.7 to 6",
        ),
        (Reason.of("arm_reported", "motion_failed", detail="axis 3"), "the arm reported: motion failed: axis 3"),
        (Reason.of("arm_reported", "motion_failed", detail=""), "the arm reported: motion failed"),
        (Reason.of("box_outside_image", width=1280, height=960), "a box lies outside the image of 1280 x 960 px"),
        (Reason("clock_ahead"), "the clock jumped ahead by {seconds} s"),
        (Reason.of("of_tomorrow", "noise", count=3, detail="x"), "of_tomorrow subject=noise count=3.0: x"),
        (Reason.of("goal_rejected", detail="{count} {"), "the arm rejected the goal: {count} {"),
    ],
)  # fmt: skip
def test_a_reason_in_words(reason, text):
    assert text_of(reason) == text


def test_what_the_tables_of_reasons_name_is_a_code_or_a_subject():
    known = {*MESSAGES, *messages.MEASURES, *messages._CATALOGUE["page"]["subjects"]}
    named = " ".join([*messages._PARTICULAR.values(), *messages._SHOWN_BY.values()]).split()
    assert [word for word in named if word not in known] == []
    assert messages._SHOWN_BY.keys() == messages.LACKS.keys()


def test_several_reasons_are_one_line():
    held, same = Reason("held"), Reason.of("image_repeats", count=3)
    assert texts_of([held, same]) == "held; consecutive images with identical pixels: 3"
    assert gate_text(["held", "frozen_image"], [same]) == (
        "the camera image is frozen; held: consecutive images with identical pixels: 3"
    )
    assert gate_text([], []) == ""
    assert log_line([Reason.of("permit_revoked", goal=3), held]) == "permit 3 revoked: held"


def test_a_reason_survives_json():
    whole = Reason("x", "noise", 1.5, float("inf"), (("seconds", 2.0), ("detail", "d")), (1.0, 2.0, 3.0, 4.0))
    for reason in (whole, Reason("x"), Reason.of("x", count=3)):
        assert Reason.from_dict(reason.to_dict()) == reason
    assert Reason("x").to_dict() == {"code": "x"}
