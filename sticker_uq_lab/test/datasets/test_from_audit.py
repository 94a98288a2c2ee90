# SPDX-License-Identifier: Apache-2.0
"""People's answers as labels: what is known to lie on a picture, and what a changed log is worth."""

import json
from dataclasses import replace

import pytest
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image

from sticker_uq.gate.answers import Answer, OperatorAnswer, OperatorAnswers, SceneAnswer
from sticker_uq.gate.audit import AuditLog
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.nodes.common.conversions import decision_to_msg, header_of, scene_to_msg
from sticker_uq.scene import InvalidInput, ObjectClass, ObjectVerdict, Outcome, Reason, SceneDecision, Verdict
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE, assessment, object_at
from sticker_uq_lab.datasets.from_audit import (
    AnsweredQuestion,
    answered_cases,
    answered_questions,
    label_case,
    recorded_decisions,
)
from sticker_uq_msgs.msg import SceneAssessment as SceneAssessmentMsg
from sticker_uq_msgs.msg import SceneDecision as SceneDecisionMsg
from test.helpers.recordings import declare_more

STICKER, LOGO, BACKGROUND = ObjectClass.STICKER, ObjectClass.LOGO, ObjectClass.BACKGROUND
DRAWN = (10.0, 20.0, 60.0, 70.0)


def decision(*verdicts):
    why = (Reason("held"),)
    return SceneDecision(
        decision_id="d1", stamp_ns=5, frame_id="camera", outcome=Outcome.ASK, reasons=(), model_hash="m", policy_hash="p",
        workpiece_id="laptop-1",
        verdicts=tuple(ObjectVerdict(object_at(box, label), verdict, why) for box, label, verdict in verdicts),
    )  # fmt: skip


def question(*answers, scene=SceneAnswer.NONE, before=()):
    said = tuple(OperatorAnswer(answer, box) for answer, box in answers)
    memory = OperatorAnswers(tuple(OperatorAnswer(answer, box) for answer, box in before))
    return AnsweredQuestion("r1", "d1", "laptop-1", 5, "Ada", scene, said, memory)


def labels(*case):
    boxes, problem = label_case(*case)
    assert problem == ""
    return {as_box(b.box): (b.label, b.source) for b in boxes}


@pytest.mark.parametrize(
    ("answer", "label"), [(Answer.REMOVE, STICKER), (Answer.KEEP, LOGO), (Answer.NOT_THERE, None)]
)
def test_the_person_is_right_whatever_the_detector_believed(answer, label):
    for believed in ObjectClass:
        found = labels(question((answer, HERE)), decision((HERE, believed, Verdict.ASK)))
        assert found == ({} if label is None else {HERE: (label, "person")})


NEAR_DRAWN = (DRAWN[0] + 2, *DRAWN[1:])
THREE = ((HERE, STICKER, Verdict.ASK), (THERE, LOGO, Verdict.KEEP), (ELSEWHERE, STICKER, Verdict.REMOVE))
LABELLED = {
    "what was not in question is labelled as the policy decided": (
        question((Answer.KEEP, HERE)), THREE,
        {HERE: (LOGO, "person"), THERE: (LOGO, "policy"), ELSEWHERE: (STICKER, "policy")},
    ),
    "what was said before about the laptop still holds, and newer words win": (
        question((Answer.NOT_THERE, HERE), before=((Answer.REMOVE, THERE), (Answer.KEEP, HERE))),
        ((HERE, STICKER, Verdict.ASK), (THERE, LOGO, Verdict.REMOVE)),
        {THERE: (STICKER, "person")},
    ),
    "a drawn sticker that the detector does not see": (question((Answer.MISSED, DRAWN)), (), {DRAWN: (STICKER, "person")}),
    "one that it sees counts once": (
        question((Answer.MISSED, DRAWN)), ((NEAR_DRAWN, STICKER, Verdict.ASK),), {NEAR_DRAWN: (STICKER, "person")}
    ),
    "background is no box": (question((Answer.REMOVE, HERE)), ((THERE, BACKGROUND, Verdict.KEEP),), {}),
    "no sticker is left leaves logos only": (question(scene=SceneAnswer.CLEAN), THREE, {THERE: (LOGO, "policy")}),
}  # fmt: skip


@pytest.mark.parametrize("name", LABELLED)
def test_what_is_labelled(name):
    asked, verdicts, expected = LABELLED[name]
    assert labels(asked, decision(*verdicts)) == expected


def test_a_picture_on_which_something_stayed_open_is_not_used():
    boxes, problem = label_case(question((Answer.REMOVE, THERE)), decision((HERE, STICKER, Verdict.ASK)))
    assert boxes == ()
    assert "was not decided" in problem


@pytest.mark.parametrize("scene", [SceneAnswer.RESCAN, SceneAnswer.SKIP_LAPTOP, SceneAnswer.FAULT])
def test_an_answer_that_says_nothing_about_objects_is_not_used(scene):
    boxes, problem = label_case(question(scene=scene), decision((HERE, LOGO, Verdict.KEEP)))
    assert boxes == ()
    assert problem


def write_log(folder, *told):
    log = AuditLog(folder, 10**6)
    for kind, data in told:
        log.add(kind, data)
    assert log.flush(30.0)
    log.close()


def asked(identity, workpiece="laptop-1"):
    data = {
        "request_id": identity,
        "decision_id": f"d-{identity}",
        "workpiece_id": workpiece,
        "image_stamp_ns": 7,
    }
    return "request", data


def answered(identity, answer, accepted=True):
    said = [{"answer": answer.name, "box": list(HERE)}]
    data = {
        "request_id": identity,
        "person": "Ada",
        "scene_answer": "NONE",
        "answers": said,
        "accepted": accepted,
    }
    return "answer", data


def test_only_accepted_answers_count_and_each_laptop_has_its_own_past(tmp_path):
    write_log(
        tmp_path,
        asked("r1"), answered("r1", Answer.UNKNOWN, accepted=False), answered("r1", Answer.KEEP),
        asked("r2"), answered("r2", Answer.REMOVE),
        asked("r3", "laptop-2"), answered("r3", Answer.REMOVE),
        asked("r4"), answered("r5", Answer.REMOVE),
    )  # fmt: skip
    first, second, third = answered_questions(tmp_path)
    assert (first.request_id, first.person, first.image_stamp_ns) == ("r1", "Ada", 7)
    assert first.before.answers == ()
    assert [a.answer for a in second.before.answers] == [Answer.KEEP]
    assert third.before.answers == ()


def test_answers_that_contradict_each_other_are_left_out_with_all_that_follows_from_them(tmp_path):
    kind, both = answered("r1", Answer.REMOVE)
    write_log(
        tmp_path,
        asked("r1"), (kind, {**both, "scene_answer": "CLEAN"}),
        asked("r2"), answered("r2", Answer.KEEP),
        asked("r3", "laptop-2"), answered("r3", Answer.KEEP),
        asked("r4", ""), answered("r4", Answer.KEEP),
    )  # fmt: skip
    seen = decision((HERE, STICKER, Verdict.ASK))
    cases = [label_case(case, seen) for case in answered_questions(tmp_path)]
    assert [len(boxes) for boxes, _ in cases] == [0, 0, 1, 1]
    first, second, *rest = [problem for _, problem in cases]
    assert first.startswith("contradiction: an answer for the whole image")
    assert second == "an earlier answer about the laptop was a contradiction"
    assert rest == ["", ""]


def test_what_a_recording_has_lost_of_images_and_decisions_is_told(tmp_path):
    write_log(tmp_path / "audit", asked("r1"), answered("r1", Answer.KEEP))
    with BagWriter(tmp_path / "bag") as bag:
        for topic, kind in {
            "image": Image,
            "decision": SceneDecisionMsg,
            "scene": SceneAssessmentMsg,
        }.items():
            package = "sensor_msgs" if kind is Image else "sticker_uq_msgs"
            bag.add_topic(f"/{topic}", f"{package}/msg/{kind.__name__}")
            bag.write(f"/{topic}", 1, serialize_message(kind()))
    told = []
    for change in (lambda path: path, declare_more):
        (case,) = answered_cases(
            tmp_path / "audit", [change(tmp_path / "bag")], on_read=lambda *one: told.append(one)
        )
        assert case.problem == "no recording has its decision and its image"
    assert [lost for _, _, lost in told] == [
        "",
        "; ".join(f"1 of 3 messages of /{topic} can be read" for topic in ("image", "decision", "scene")),
    ]


def test_of_several_cameras_with_equal_stamps_the_supervised_one_is_labelled(tmp_path):
    seen, other = assessment(object_at(HERE)), assessment(object_at(THERE))
    said = replace(decision((HERE, STICKER, Verdict.REMOVE)), stamp_ns=seen.stamp_ns)
    picture = Image(header=header_of(seen.stamp_ns, "camera"), height=1, width=1, encoding="bgr8", step=3)
    picture.data = bytes(3)
    with BagWriter(tmp_path / "bag") as bag:
        for topic, message in {
            "/image": picture,
            "/decision": decision_to_msg(said),
            "/scene": scene_to_msg(seen),
            "/left/scene": scene_to_msg(other),
        }.items():
            package = "sensor_msgs" if message is picture else "sticker_uq_msgs"
            bag.add_topic(topic, f"{package}/msg/{type(message).__name__}")
            bag.write(topic, 1, serialize_message(message))
    [(found, _)] = recorded_decisions([tmp_path / "bag"], {"d1"})
    assert as_box(found.verdicts[0].object.box) == HERE


def test_a_log_that_somebody_changed_teaches_nothing(tmp_path):
    write_log(tmp_path, asked("r1"), answered("r1", Answer.KEEP), asked("r2"), answered("r2", Answer.KEEP))
    [file] = tmp_path.glob("*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    entry = json.loads(lines[1])
    entry["data"]["answers"][0]["answer"] = "REMOVE"
    lines[1] = json.dumps(entry, sort_keys=True, separators=(",", ":")) + "\n"
    file.write_text("".join(lines))
    with pytest.raises(InvalidInput, match="altered"):
        answered_questions(tmp_path)
