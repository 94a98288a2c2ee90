# SPDX-License-Identifier: Apache-2.0
"""Answers yes or no prove what labelled boxes prove, and a file of them loses nothing."""

import errno
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sticker_uq.calibration import proving
from sticker_uq.calibration.answers import About, AnswerFile, Question, read_answers
from sticker_uq.calibration.fitting import Levels
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.outcomes import outcomes_of
from sticker_uq.calibration.proving import Trials
from sticker_uq.calibration.records import Record
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import RiskScore, RiskTerm, SaliencyLimit
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq.testing.scenes import HERE, THERE, assessment, object_at
from sticker_uq.uncertainty import iou_matrix
from test.helpers.answering import answer_from_labels, question_of

RISING = RiskTerm(signal="improbability", knots=(0.0, 1.0), log_odds=(0.0, 8.0))
POLICY = Policy(
    max_dil=1.0,
    max_dil_clean=1.0,
    min_probability=0.34,
    notable_probability=0.2,
    max_logo_overlap=1.0,
    max_scene_distance=1.0,
    unmeasured_novelty="release",
    max_shannon_entropy=1.6,
    max_variation_ratio=1.0,
    max_mutual_information=1.6,
    risk=RiskScore(intercept=-4.0, terms=(RISING,), max_removal=0.5),
    saliency=SaliencyLimit(signal="background_saliency", max_clean=1000.0, percentile=95.0),
)
LIMITS = np.linspace(0.0, 1.0, 21).tolist()


def answered(record: Record) -> Record:
    """The same picture with a person's answers in place of labels."""
    said = answer_from_labels(question_of(record, POLICY), record)
    nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    return Record(record.name, *nothing, record.assessment, record.workpiece, said)


def place(rng, near, share):
    """A box somewhere, or, for a ``share`` of them, one of ``near`` moved and stretched a little, so that many overlap."""
    if near and rng.random() < share:
        moved = np.maximum(near[rng.integers(len(near))] + rng.integers(-14, 15, 4), 0.0)
        return np.append(moved[:2], np.maximum(moved[2:], moved[:2] + 10.0))
    corner = rng.integers(0, 120, 2)
    return np.append(corner, corner + rng.integers(30, 70, 2)).astype(float)


def laptop(rng):
    """A labelled picture with stickers and logos, which overlap, and what was seen of them and beside them."""
    there, seen = [], []
    for _ in range(rng.integers(0, 5)):
        there.append(place(rng, there, 0.5))
    for _ in range(rng.integers(0, 6)):
        p = rng.choice([0.1, 0.4, 0.6, 0.8, 0.9, 0.97])
        label = ObjectClass.LOGO if rng.random() < 0.1 else ObjectClass.STICKER
        box = place(rng, there, 0.85)
        seen.append(object_at(tuple(box), label, probabilities=((1 - p) / 2, (1 - p) / 2, p)))
    return Record(
        "1",
        np.array(there, np.float32).reshape(-1, 4),
        rng.choice([ObjectClass.LOGO, ObjectClass.STICKER], len(there), p=[0.3, 0.7]).astype(np.int64),
        assessment(*seen),
        str(rng.choice(["", "", "a", "b"])),
    )


def on_one_sticker_apart(record: Record) -> bool:
    """Whether two boxes on one sticker are not at the same place: nobody is asked whether it is one."""
    own = np.array(question_of(record, POLICY).boxes, float).reshape(-1, 4)
    on = record.met(own, 0.3).sticker
    one = (on[:, None] == on) & (on >= 0) & (iou_matrix(own, own) < 0.5)
    return bool(one.any())


def both(records):
    """What follows from the labels of ``records``, and from a person's answers."""
    return [outcomes_of(each, POLICY) for each in (records, [answered(record) for record in records])]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_answers_give_the_events_of_labels_at_every_limit(seed):
    rng = np.random.default_rng(seed)
    records = [laptop(rng) for _ in range(8)]
    labels, answers = both(records)
    np.testing.assert_array_equal(labels.select_removable()[1], answers.select_removable()[1])
    for name in ("right", "image"):
        ours, theirs = (getattr(each.select_removable()[0], name) for each in (labels, answers))
        np.testing.assert_array_equal(ours, theirs)
    assert labels.ends.laptops == answers.ends.laptops
    for name in ("first", "beyond", "left"):
        np.testing.assert_array_equal(getattr(labels.ends, name), getattr(answers.ends, name))
    # where two boxes on one sticker lie apart, one that goes with a third box may count as left, never the other way round
    assert (labels.ends.dirty <= answers.ends.dirty).all()
    ours, theirs = (
        proving.run_trials(each, LIMITS, 1.0)
        for each in both([record for record in records if not on_one_sticker_apart(record)])
    )
    assert ours == theirs
    for limit in (0.3,):
        policy = POLICY.model_copy(
            update={"risk": RiskScore(intercept=-4.0, terms=(RISING,), max_removal=limit)}
        )
        ours, theirs = measure(records, policy), measure([answered(record) for record in records], policy)
        assert (ours.wrongful, ours.wrong_objects, ours.clean, ours.asked) == (
            theirs.wrongful,
            theirs.wrong_objects,
            theirs.clean,
            theirs.asked,
        )
        assert theirs.on_logo is None


def test_a_policy_is_proved_from_answers_as_from_labels(drawn):
    proof = drawn(1000, 120)
    levels = Levels(0.1, 0.3, 0.1)
    by_labels = Trials(POLICY, (), proof).policy(levels)
    by_answers = Trials(POLICY, (), [answered(record) for record in proof]).policy(levels)
    assert by_labels.guarantee == by_answers.guarantee
    assert by_labels.hash == by_answers.hash


def test_two_boxes_at_one_place_are_one_sticker_or_two_as_a_person_says():
    near = (HERE[0] + 10, *HERE[1:])
    risks = {"probabilities": (0.05, 0.05, 0.9)}
    seen = assessment(object_at(HERE), object_at(near, **risks))
    one = Record("1", np.array([HERE], np.float32), np.array([2]), seen)
    two = Record("1", np.array([HERE, near], np.float32), np.array([2, 2]), seen)
    for record, dirty in ((one, [False, False]), (two, [True, False])):
        said = answered(record)
        assert said.said is not None
        assert said.sticker_count == record.sticker_count
        # the second box goes with the first one, at limits that release only that
        for each in (record, said):
            assert outcomes_of([each], POLICY).ends.dirty.tolist() == dirty


def test_a_box_that_nobody_was_asked_about_is_refused_and_one_of_another_machine_is_found():
    seen = assessment(object_at(HERE))
    record = answered(Record("1", np.array([HERE], np.float32), np.array([2]), seen))
    moved = [object_at(tuple(np.array(HERE) + shift)) for shift in (0.01, 0.2)]
    assert outcomes_of([replace(record, assessment=assessment(moved[0]))], POLICY).detected.right.all()
    for objects in (moved[1:], [object_at(HERE), object_at(THERE)]):
        with pytest.raises(InvalidInput, match=r"picture 1: the box .* nobody was asked"):
            outcomes_of([replace(record, assessment=assessment(*objects))], POLICY)


ABOUT = About(model_hash="m" * 64, settings_hash="s" * 64, panel_hash="")


def said(image, *answers, other=False):
    places = (HERE, THERE)[: len(answers)]
    question = Question(image, f"{image}.jpg", None, (640, 480), places)
    return question.with_answers(answers, [], other)


def test_the_file_survives_a_crash_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "answers.jsonl"
    first, second = said("a", "sticker"), said("b", "no_sticker", "takes_logo", other=True)
    file = AnswerFile(path, ABOUT)
    file.say(first)
    file.close()
    whole = path.read_bytes()
    for cut in range(1, len(whole), 9):  # whatever was on the disk by then
        path.write_bytes(whole[:cut])
        file = AnswerFile(path, ABOUT)
        assert file.answers == {}
        file.say(second)
        file.close()
        assert read_answers(path) == (ABOUT, {"b": second})
    path.write_bytes(whole + b'{"image": "c"')
    file = AnswerFile(path, ABOUT)
    file.say(second)
    assert file.take_back() == second
    assert file.last == first
    file.close()
    assert read_answers(path)[1] == {"a": first}


def test_a_full_disk_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "answers.jsonl"
    file = AnswerFile(path, ABOUT)
    file.say(said("a", "sticker"))
    write = os.write

    def full(descriptor, data):
        if len(data) > 10:
            return write(descriptor, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        file.say(said("b", "sticker"))
    assert file.answers.keys() == read_answers(path)[1].keys() == {"a"}
    monkeypatch.undo()
    file.say(said("b", "sticker"))
    assert read_answers(path)[1].keys() == {"a", "b"}
    file.close()


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "answers.jsonl"
    file = AnswerFile(path, ABOUT)
    with pytest.raises(InvalidInput, match="another `sticker-uq ask` is writing it"):
        AnswerFile(path, ABOUT)
    file.say(said("a", "sticker"))
    file.close()
    with pytest.raises(InvalidInput, match=r"settings_hash ssssssssssss, and this is x: give the weights"):
        AnswerFile(path, ABOUT.model_copy(update={"settings_hash": "x"}))
    good = path.read_text()
    for line, why in (
        ("no json", "line 3"),
        ('{"undo": "b"}', "line 3: takes back what was not the last answer"),
        ('{"image": "a", "name": "a", "boxes": [], "other": 7}', "line 3: other"),
        (good.splitlines()[1].replace('"answer"', '"same_as": 0, "answer"'), "same_as 0 of box 0"),
    ):
        path.write_text(good + line + "\n")
        for read in (read_answers, lambda file: AnswerFile(file, ABOUT)):
            with pytest.raises(InvalidInput, match=why):
                read(path)
        assert path.read_text() == good + line + "\n", "nothing is lost"
