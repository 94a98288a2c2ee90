# SPDX-License-Identifier: Apache-2.0
"""An image closes the gate when it arrives, before any model has looked at it; it never opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sticker_uq.gate import BlockReason, GateSettings, Phase
from sticker_uq.gate.events import CancelGoal, ImageArrived, SendGoal
from sticker_uq.scene import Exposure, ImageCheck
from sticker_uq.testing.scenes import MS, SECOND, SIZE
from test.helpers.gate import (
    SETTINGS,
    STICKER,
    Cell,
    K,
    Make,
    asking,
    finish,
    permitted,
    removing,
    running,
    verifying,
)

LIT = Exposure(120.0, 0.0, 0.0)


def arrives(cell: Cell, age: float = 0.01, **changes: Any) -> Cell:
    """Let an image arrive that was taken ``age`` seconds ago and follows the one before."""
    stamp = cell.now - round(age * SECOND)
    values = {"image_size": SIZE, "exposure": LIT, "previous_stamp_ns": stamp - 50 * MS, **changes}
    cell.send(
        ImageArrived(ImageCheck(values.pop("stamp_ns", stamp), values.pop("frame_id", "camera"), **values))
    )
    return cell


IMPLAUSIBLE: dict[str, tuple[Callable[[Cell], dict[str, Any]], BlockReason, str]] = {
    "unusable": (
        lambda _: {"problem": "image data is empty"},
        BlockReason.FAILED_SCENE,
        "image_unusable",
    ),
    "black": (
        lambda _: {"exposure": Exposure(2.0, 1.0, 0.0)},
        BlockReason.EXPOSURE,
        "below_limit",
    ),
    "overexposed": (
        lambda _: {"exposure": Exposure(250.0, 0.0, 0.9)},
        BlockReason.EXPOSURE,
        "above_limit",
    ),
    "brightness unknown": (lambda _: {"exposure": None}, BlockReason.EXPOSURE, "not_measured"),
    "frozen": (lambda _: {"repeats": SETTINGS.frozen_images}, BlockReason.FROZEN_IMAGE, "image_repeats"),
    "stamp is zero": (lambda _: {"stamp_ns": 0}, BlockReason.STAMP_ORDER, "stamp_invalid"),
    "stamp stands still": (
        lambda cell: {"previous_stamp_ns": cell.now - 10 * MS},
        BlockReason.STAMP_ORDER,
        "stamp_unchanged",
    ),
    "stamps go back": (
        lambda cell: {"previous_stamp_ns": cell.now + 10 * MS},
        BlockReason.STAMP_ORDER,
        "stamp_backwards",
    ),
    "in the future": (lambda _: {"age": -0.06}, BlockReason.CLOCK, "stamp_in_future"),
    "old": (lambda _: {"age": 1.0}, BlockReason.STALE_SCENE, "image_late"),
    "other size": (
        lambda _: {"image_size": (320, 240)},
        BlockReason.SOURCE_CHANGED,
        "image_source_changed",
    ),
    "other frame": (lambda _: {"frame_id": "lid"}, BlockReason.SOURCE_CHANGED, "image_source_changed"),
}


@pytest.mark.parametrize("name", IMPLAUSIBLE)
@pytest.mark.parametrize("make", [permitted, removing])
def test_an_implausible_image_closes_at_once_and_stops_the_arm(make: Make, name: str) -> None:
    changes, reason, code = IMPLAUSIBLE[name]
    cell = make()
    arrives(cell, **changes(cell))
    assert cell.state.reasons & reason, cell.details
    assert code in cell.details
    assert cell.sent(CancelGoal) == [CancelGoal(1)]


@pytest.mark.parametrize("make", [permitted, removing, verifying, asking])
def test_a_plausible_image_changes_nothing(make: Make) -> None:
    cell = make()
    before = cell.state
    arrives(cell)
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
def test_at_the_limits_an_image_is_believed(name: str, changes: dict[str, Any]) -> None:
    assert arrives(removing(), **changes).state.open, name


def test_scenes_of_images_from_before_it_are_no_evidence() -> None:
    """The detector may still be busy with a good image of the time before."""
    cell = arrives(running().scene(STICKER), exposure=Exposure(2.0, 1.0, 0.0))
    assert cell.phase is Phase.BLOCKED
    refused = cell.now
    for late in range(1, K + 3):
        cell.scene(STICKER, stamp_ns=refused - 15 * MS + late)
        assert cell.phase is Phase.MONITORING
        assert cell.state.streak.count == 0
    cell.scene(STICKER, times=K - 1)
    assert not cell.sent(SendGoal)
    cell.scene(STICKER)
    assert cell.phase is Phase.PERMITTED


def test_after_a_clock_that_went_back_scenes_count_from_its_new_time() -> None:
    cell = running()
    arrives(cell, problem="encoding 'rgb16'")
    cell.wait(-1000.0).scene(STICKER, times=K + 1)
    assert cell.sent(SendGoal)


def test_it_stays_closed_until_a_good_scene_has_come() -> None:
    cell = arrives(removing(), problem="image data is empty")
    finish(cell)
    for _ in range(3):
        arrives(cell.wait(0.1))
        assert cell.state.reasons & BlockReason.FAILED_SCENE
    cell.scene(STICKER)
    assert not cell.state.reasons & BlockReason.FAILED_SCENE


def test_without_a_scene_no_size_is_known_to_have_changed() -> None:
    cell = arrives(running(), image_size=(320, 240), frame_id="lid")
    assert cell.state.reasons == BlockReason.NO_SCENE
    assert not cell.state.problems


def test_a_camera_without_noise_may_repeat_its_images() -> None:
    settings = GateSettings(**{**SETTINGS.model_dump(), "frozen_images": 0})
    cell = running(settings).scene(STICKER, times=K)
    assert arrives(cell, repeats=100).state.open


def test_an_image_at_time_zero_is_out_of_order_and_not_old() -> None:
    cell = arrives(removing(), stamp_ns=0, previous_stamp_ns=0)
    assert [reason for reason, _ in cell.state.problems] == [BlockReason.STAMP_ORDER]


def test_an_image_from_elsewhere_is_asked_nothing_more() -> None:
    """It may not have been decoded yet: nobody knows how bright it is."""
    cell = arrives(removing(), image_size=(6000, 4000), exposure=None)
    assert [reason for reason, _ in cell.state.problems] == [BlockReason.SOURCE_CHANGED]
