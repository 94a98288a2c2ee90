# SPDX-License-Identifier: Apache-2.0
"""Messages carry scenes and decisions without loss."""

import math
from dataclasses import replace
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from rclpy.serialization import deserialize_message, serialize_message

from sticker_uq import scene as sc
from sticker_uq.io.messages import decision_from_msg, image_check_from_msg, scene_from_msg, stamp_to_ns
from sticker_uq.nodes.common import conversions as cv
from sticker_uq.plain import to_plain
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs import msg as m

numbers = st.floats(width=64)
numbers32 = st.floats(width=32)
counts = st.integers(0, 2**32 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
stamps = st.integers(-(2**31) * 10**9, 2**31 * 10**9 - 1)


def floats32(*shape: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float32, shape, elements=numbers32)


@st.composite
def observed_objects(draw: st.DrawFn) -> sc.ObservedObject:
    hulls = draw(st.lists(st.integers(0, 5).flatmap(lambda n: floats32(n, 2)), max_size=4))
    metrics = {name: draw(numbers) for name in sc.METRICS}
    return sc.ObservedObject(
        id=draw(counts),
        label=draw(st.sampled_from(sc.ObjectClass)),
        box=draw(floats32(4)),
        probabilities=draw(floats32(3)),
        detections=draw(counts),
        passes=draw(counts),
        detection_rate=draw(numbers),
        duplicated=draw(st.booleans()),
        unstable=draw(st.booleans()),
        box_covariance=draw(hnp.arrays(np.float64, (4, 4), elements=numbers)),
        corner_hulls=tuple(hulls),
        monitors=tuple(draw(st.lists(st.builds(sc.MonitorScore, texts, numbers, numbers), max_size=2))),
        novelty=draw(numbers),
        single_pass=draw(numbers),
        close_up=draw(numbers),
        photo=draw(numbers),
        **metrics,
    )


@st.composite
def scenes(draw: st.DrawFn) -> sc.SceneAssessment:
    uncertainty = {name: draw(numbers) for name in sc.METRICS}
    regions = st.builds(sc.UnexplainedRegion, floats32(4), numbers, numbers)
    localization = draw(
        st.none()
        | st.builds(
            sc.Localization,
            numbers,
            numbers,
            numbers,
            numbers,
            st.none(),
            numbers,
            st.lists(regions, max_size=3).map(tuple),
            numbers,
            obstruction=numbers,
        )
    )
    return sc.SceneAssessment(
        stamp_ns=draw(stamps),
        frame_id=draw(texts),
        status=draw(st.sampled_from(sc.Status)),
        status_text=draw(texts),
        image_size=(draw(counts), draw(counts)),
        image_digest=draw(texts),
        model=draw(texts),
        model_hash=draw(texts),
        settings_hash=draw(texts),
        panel_hash=draw(texts),
        device=draw(texts),
        precision=draw(texts),
        passes=draw(counts),
        dropout_rate=draw(numbers),
        objects=tuple(draw(st.lists(observed_objects(), max_size=2))),
        unstable=tuple(draw(st.lists(observed_objects(), max_size=1))),
        uncertainty=sc.ImageUncertainty(objects=draw(counts), unstable=draw(counts), **uncertainty),
        localization=localization,
        timings=draw(st.dictionaries(texts, numbers, max_size=2)),
        exposure=draw(st.none() | st.builds(sc.Exposure, numbers, numbers, numbers, numbers, numbers)),
        scene_distance=draw(numbers),
    )


def scene_with(*objects: sc.ObservedObject, stamp_ns: int = 3_000_000_007) -> sc.SceneAssessment:
    return sc.SceneAssessment(
        stamp_ns, "camera", sc.Status.OK, "", (64, 48), "d", "ssd", "h", "s", 20, 0.2, objects, (),
        sc.ImageUncertainty(len(objects), 0), None,
    )  # fmt: skip


def one_object(identity: int = 0) -> sc.ObservedObject:
    return sc.ObservedObject(
        identity, sc.ObjectClass.STICKER, np.arange(4, dtype=np.float32), np.array([0.1, 0.2, 0.7], np.float32),
        20, 20, 1.0, False, False, np.eye(4), (np.zeros((3, 2), np.float32),),
        **{**dict.fromkeys(sc.METRICS, 0.5), "mutual_information": math.nan},
    )  # fmt: skip


@given(scene=scenes(), sequence=st.integers(0, 2**64 - 1))
def test_a_scene_survives_the_wire_byte_for_byte(scene, sequence):
    message = deserialize_message(serialize_message(cv.scene_to_msg(scene, sequence)), m.SceneAssessment)
    assert message.sequence == sequence
    back = scene_from_msg(message)
    assert back.to_bytes() == scene.to_bytes()
    assert back.panel_hash == scene.panel_hash
    for sent, received in zip(message.objects, back.objects, strict=True):
        assert [one.objection for one in sent.monitors] == [one.objection for one in received.monitors]
    np.testing.assert_equal(back.timings, scene.timings)
    assert all(o.box.dtype == np.float32 and o.box_covariance.dtype == np.float64 for o in back.objects)


@given(
    check=st.builds(
        sc.ImageCheck,
        stamps,
        texts,
        texts,
        st.tuples(counts, counts),
        st.none() | st.builds(sc.Exposure, *[st.floats(0, 255)] * 5),
        counts,
        stamps,
        st.lists(texts).map(tuple),
    )
)
def test_what_is_known_about_an_image_survives_the_wire(check):
    message = deserialize_message(serialize_message(cv.image_check_to_msg(check)), m.ImageCheck)
    assert image_check_from_msg(message) == check


@given(scene=scenes())
def test_every_part_carries_the_header_of_the_image(scene):
    whole = cv.scene_to_msg(scene)
    for part in (
        cv.detections_to_msg(scene),
        cv.uncertainty_to_msg(scene),
        cv.localization_to_msg(scene),
        whole,
        whole.uncertainty,
        whole.dil,
    ):
        assert stamp_to_ns(part.header.stamp) == scene.stamp_ns
        assert part.header.frame_id == scene.frame_id


LATER = (
    *("noise", "sharpness", "novelty", "missed_sticker_probability", "obstruction", "total_variance"),
    "scene_distance",
)


def test_a_recording_from_before_a_field_has_nan_for_it():
    class Before:
        """A message without the fields that came later."""

        def __init__(self, message: object) -> None:
            self._message = message

        def __getattr__(self, name: str) -> object:
            if name in LATER:
                raise AttributeError(name)
            value = getattr(self._message, name)
            if isinstance(value, list):
                return [Before(v) if hasattr(v, "get_fields_and_field_types") else v for v in value]
            return Before(value) if hasattr(value, "get_fields_and_field_types") else value

    localized = sc.Localization(
        2.0, 1.0, 0.5, 0.5, novelty=0.5, missed_sticker_probability=0.5, obstruction=0.5
    )
    scene = replace(
        scene_with(replace(one_object(), novelty=0.5)),
        exposure=sc.Exposure(90.0, 0.1, 0.2, 1.0, 2.0),
        localization=localized,
        scene_distance=0.5,
    )
    old = scene_from_msg(Before(cv.scene_to_msg(scene)))
    assert (old.exposure.mean_level, old.exposure.saturated_share) == (90.0, 0.2)
    assert old.localization.dil == 0.5
    later = (
        old.exposure.noise,
        old.exposure.sharpness,
        old.localization.novelty,
        old.localization.missed_sticker_probability,
        old.localization.obstruction,
        old.uncertainty.total_variance,
        old.objects[0].total_variance,
        old.scene_distance,
    )
    assert all(map(math.isnan, (*later, old.objects[0].novelty)))


def test_values_that_are_not_known_block():
    message = cv.scene_to_msg(scene_with(one_object()))
    message.status = 77
    message.objects[0].label = 9
    scene = scene_from_msg(message)
    assert scene.status is sc.Status.UNKNOWN
    assert scene.objects[0].label is sc.ObjectClass.BACKGROUND


def test_a_message_that_nobody_filled_has_unknown_status_and_no_dil():
    scene = scene_from_msg(m.SceneAssessment())
    assert scene.status is sc.Status.UNKNOWN
    assert scene.localization is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda one: setattr(one, "probabilities", [0.5, 0.5]), "2 values in probabilities"),
        (lambda one: setattr(one, "box_covariance", [1.0] * 15), "15 values in box_covariance"),
        (lambda one: setattr(one.corner_hulls[0], "x", [1.0]), "corner hull"),
    ],
)
def test_arrays_of_the_wrong_length_are_refused(change, complaint):
    message = cv.scene_to_msg(scene_with(one_object(5)))
    change(message.objects[0])
    with pytest.raises(InvalidInput, match=f"object 5 .*{complaint}"):
        scene_from_msg(message)


@pytest.mark.parametrize("stamp_ns", [2**31 * 10**9, -(2**31) * 10**9 - 1])
def test_a_stamp_out_of_range_is_refused(stamp_ns):
    with pytest.raises(InvalidInput, match=str(stamp_ns)):
        cv.ns_to_stamp(stamp_ns)


def decision_about(scene: sc.SceneAssessment) -> sc.SceneDecision:
    reason = sc.Reason("above_limit", "shannon_entropy", 1.2, 0.5)
    verdicts = tuple(
        sc.ObjectVerdict(o, verdict, (reason,), by_operator=verdict is sc.Verdict.KEEP, margin=0.1)
        for o, verdict in zip(scene.objects, sc.Verdict, strict=False)
    )
    return sc.SceneDecision(
        "id",
        scene.stamp_ns,
        scene.frame_id,
        sc.Outcome.ASK,
        verdicts,
        (
            sc.Reason.of("unfamiliar_scene", signal="noise", measured=14, low=0.7, high=6, detail="why"),
            sc.Reason(
                "missed_place", "novelty", 0.5, 0.1, (("zero", 0.0), ("empty", "")), (20.0, 30.5, 60.0, 80.0)
            ),
        ),
        "mh",
        "ph",
        "lid 3",
    )


def test_a_decision_survives_together_with_its_scene():
    scene = scene_with(*(one_object(i) for i in range(4)))
    decision = decision_about(scene)
    wire = serialize_message(cv.decision_to_msg(decision))
    back = decision_from_msg(deserialize_message(wire, m.SceneDecision), scene)
    assert str(to_plain(back)) == str(to_plain(decision))


def test_a_decision_that_lacks_a_field_is_refused():
    scene = scene_with(one_object())
    message = cv.decision_to_msg(decision_about(scene))
    fields = {name: getattr(message, name) for name in message.get_fields_and_field_types()}
    assert decision_from_msg(SimpleNamespace(**fields), scene).workpiece_id == "lid 3"
    del fields["workpiece_id"]
    with pytest.raises(InvalidInput, match="other fields than expected: workpiece_id"):
        decision_from_msg(SimpleNamespace(**fields), scene)


def test_unknown_verdict_and_outcome_block():
    scene = scene_with(one_object())
    message = cv.decision_to_msg(decision_about(scene))
    message.outcome = 200
    message.verdicts[0].verdict = 200
    back = decision_from_msg(message, scene)
    assert back.outcome is sc.Outcome.UNKNOWN
    assert back.verdicts[0].verdict is sc.Verdict.UNKNOWN


def test_a_decision_about_another_scene_is_refused():
    message = cv.decision_to_msg(decision_about(scene_with(one_object(1))))
    with pytest.raises(InvalidInput, match="names objects \\[1\\]"):
        decision_from_msg(message, scene_with(one_object(2)))
    with pytest.raises(InvalidInput, match="is about the image at 3000000007 ns"):
        decision_from_msg(message, scene_with(one_object(1), stamp_ns=4))
