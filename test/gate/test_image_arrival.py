# SPDX-License-Identifier: Apache-2.0
"""An image closes the gate when it arrives, before any model has looked at it; it never opens it."""

from statistics import median

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sticker_uq.gate import BlockReason
from sticker_uq.gate.events import (
    Activated,
    CancelGoal,
    DeclareDone,
    ImageArrived,
    Impediment,
    SendGoal,
    Tick,
)
from sticker_uq.gate.plausibility import lateness
from sticker_uq.gate.state import FEWEST_AGES, MOST_AGES
from sticker_uq.messages import texts_of
from sticker_uq.scene import Exposure, ImageCheck, Reason, Status
from sticker_uq.testing.scenes import MS, SECOND, SIZE
from test.helpers.exploration import DETECTORS
from test.helpers.gate import (
    CANCELLED,
    LIT,
    SETTINGS,
    STICKER,
    K,
    asking,
    finish,
    permitted,
    removing,
    running,
    verifying,
)


@pytest.mark.parametrize("make", [permitted, removing, verifying, asking])
def test_a_plausible_image_changes_nothing(make):
    cell = make()
    before = cell.state
    cell.image()
    for name in ("problems", "counts_after_ns", "phase", "reasons", "permit", "scene", "silent_ticks"):
        assert getattr(cell.state, name) == getattr(before, name), name


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("frozen", {"repeats": SETTINGS.frozen_images - 1}),
        ("dark", {"exposure": Exposure(10.0, 0.9, 0.0)}),
        ("future", {"age": -0.05}),
        ("old", {"age": 0.999}),
        ("first", {"previous_stamp_ns": 0}),
    ],
)
def test_at_the_limits_an_image_is_believed(name, changes):
    assert removing().image(**changes).state.open, name


def test_after_a_clock_that_went_back_scenes_count_from_its_new_time():
    cell = running()
    cell.image(problem="encoding 'rgb16'")
    cell.wait(-1000.0).scene(STICKER, times=K + 1)
    assert cell.sent(SendGoal)


def test_without_a_scene_no_size_is_known_to_have_changed():
    cell = running().image(image_size=(320, 240), frame_id="lid")
    assert cell.state.reasons == BlockReason.NO_SCENE
    assert not cell.state.problems


def test_an_image_from_elsewhere_is_asked_nothing_more():
    """It may not have been decoded yet: nobody knows how bright it is."""
    cell = removing().image(image_size=(6000, 4000), exposure=None)
    assert [reason for reason, _ in cell.state.problems] == [BlockReason.SOURCE_CHANGED]


# --- two cameras on one topic -----------------------------------------------------------------------------------------------

CAMERA, OTHER = "/camera", "/usb_cam"
SHOWN = {"laptop": (STICKER,), "clean lid": ()}
one_image = st.tuples(st.sampled_from(list(SHOWN)), st.floats(0.02, 0.4), st.booleans())


@hypothesis_settings(max_examples=40)
@given(
    images=st.lists(one_image, max_size=40),
    make=st.sampled_from([running, permitted, removing, verifying]),
    found=st.sampled_from([(CAMERA, OTHER), (CAMERA, CAMERA), (CAMERA, OTHER, "(unnamed)")]),
)
def test_while_two_publish_nothing_is_permitted_and_no_laptop_is_done(images, make, found):
    """Whatever the two show, in whatever order and at whatever rate, and whichever of check and scene comes first."""
    cell = make()
    cell.image(image_publishers=found)
    assert not cell.state.open
    before = len(cell.effects)
    for shown, pause, check_first in images:
        cell.wait(pause)
        if check_first:
            cell.image(image_publishers=found)
        cell.scene(*SHOWN[shown], image_publishers=found)
        assert cell.state.reasons & BlockReason.SECOND_IMAGE_PUBLISHER
        assert all(name in texts_of(cell.state.details) for name in found)
        if not check_first:
            cell.image(image_publishers=found)
    assert not any(isinstance(effect, SendGoal | DeclareDone) for effect in cell.effects[before:])
    assert cell.state.verification is None or not cell.state.verification.gone


def test_two_cameras_are_named_whatever_else_is_wrong():
    for changes in (
        {"problem": "no data"},
        {"image_size": (320, 240)},
        {"exposure": Exposure(2.0, 1.0, 0.0)},
    ):
        cell = removing().image(image_publishers=(CAMERA, OTHER), **changes)
        assert "image_publishers" in cell.details, changes
    cell = removing().scene(STICKER, status=Status.FAILED, image_publishers=(CAMERA, OTHER))
    assert "image_publishers" in cell.details


def test_scenes_of_two_detectors_open_nothing_and_those_under_way_do_not_count():
    two = Impediment(BlockReason.SECOND_SCENE_PUBLISHER, DETECTORS)
    cell = removing()
    cell.send(two)
    assert cell.sent(CancelGoal) == [CancelGoal(1)]
    finish(cell, CANCELLED)
    cell.scene(times=K + 2)
    cell.send(Impediment(BlockReason.SECOND_SCENE_PUBLISHER, None))
    cell.scene(times=K, stamp_ns=cell.now - 15 * MS)
    assert not cell.sent(DeclareDone)
    assert cell.state.attempts == (), "a removal that was stopped for it has not failed"
    assert len(cell.scene(STICKER, times=K).sent(SendGoal)) == 2


# --- the words for what is too old, and for a clock that does not run -------------------------------------------------------

NOW = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("stamp_ns", "now_ns", "reason"),
    [
        (NOW - 5 * SECOND, NOW, Reason.of("image_late", seconds=5.0)),
        (1234 * SECOND, NOW, Reason.of("stamp_since_start", seconds=1234.0)),
        (1234 * SECOND, 1240 * SECOND, Reason.of("image_late", seconds=6.0)),
    ],
)
def test_an_image_that_is_too_old_tells_by_how_much_its_stamp_is_behind_the_clock(stamp_ns, now_ns, reason):
    assert lateness(stamp_ns, now_ns) == reason


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 0.8)), min_size=1, max_size=12))
def test_a_camera_that_is_slower_than_the_age_limit_closes_without_a_break_and_is_named(scenes):
    """Of each scene: how long after the limit of the one before it comes, and how old it is then, s."""
    cell, age = running().scene(STICKER), 0.0
    for beyond, next_age in scenes:
        for _ in range(2):
            cell.wait((SETTINGS.max_scene_age_s - age + beyond) / 2).tick()
        assert cell.state.reasons & BlockReason.STALE_SCENE
        cell.scene(STICKER, age=next_age)
        assert cell.state.reasons & BlockReason.STALE_SCENE
        assert {"images_apart", "scenes_too_slow"} & {*cell.details}
        age = next_age
    cell.scene(STICKER, times=1 if len(scenes) < FEWEST_AGES - 1 else MOST_AGES // 2 + 1)
    assert not cell.state.reasons & BlockReason.STALE_SCENE, "the next ones have come in time"


@given(st.lists(st.floats(0.1, 3.0), min_size=1, max_size=40), st.sampled_from([running, removing]))
def test_a_machine_too_slow_for_its_age_limit_stays_closed_and_says_both_numbers(ages, make):
    """``ages``: how old each scene is when the next one comes, s. Whatever their order, those of the last ten count."""
    cell, limit = make(), SETTINGS.max_scene_age_s
    cell.send(Activated())
    cell.scene(STICKER, age=0.0)
    for number, age in enumerate(ages, start=1):
        cell.wait(age - 0.1).scene(STICKER, age=0.0)
        last = ages[max(0, number - MOST_AGES) : number]
        usual = median(last) if number >= FEWEST_AGES else 0.0
        assert bool(cell.state.reasons & BlockReason.STALE_SCENE) == (max(age, usual) >= limit - 1e-9)
        said = {each.code: dict(each.values) for each in cell.state.details}
        assert ("scenes_too_slow" in said) == (usual >= limit - 1e-9)
        if "scenes_too_slow" in said:
            assert said["scenes_too_slow"] == {
                "seconds": round(cell.state.usual_age_ns / 1e9, 1),
                "high": limit,
            }
            assert not cell.state.open


def test_one_long_pause_does_not_make_a_machine_slow():
    cell = running().scene(STICKER, times=FEWEST_AGES).wait(3600.0).scene(STICKER, times=2)
    assert not cell.state.reasons & BlockReason.STALE_SCENE


def test_a_camera_that_has_only_stopped_is_not_called_slow():
    cell = running().scene(STICKER, times=2)
    cell.wait(SETTINGS.max_scene_age_s).tick()
    assert cell.state.reasons & BlockReason.STALE_SCENE
    assert "images_apart" not in cell.details


def test_a_clock_that_stands_still_is_named_and_not_the_stamps():
    cell = running().scene(STICKER)
    stamp = cell.state.scene.stamp_ns
    cell.send(Tick())
    cell.send(
        ImageArrived(ImageCheck(stamp, "camera", image_size=SIZE, exposure=LIT, previous_stamp_ns=stamp))
    )
    assert (cell.state.reasons & BlockReason.CLOCK, cell.details) == (BlockReason.CLOCK, ["clock_stands"])
    assert not cell.state.reasons & BlockReason.STAMP_ORDER
