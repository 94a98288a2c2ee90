# SPDX-License-Identifier: Apache-2.0
"""Several processes say exactly what one says, in the same order.

The perception is scripted: that the real one says the same in every process is shown by test/cli/test_replay.py.
"""

from __future__ import annotations

import itertools
import os
from collections import namedtuple
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sticker_uq.evaluation.replay import assessing
from sticker_uq.evaluation.replay.assessing import check_sharing, one_by_one, process_count, side_by_side
from sticker_uq.io.sources import SourceImage, open_source
from sticker_uq.perception import PerceptionSettings, Shot
from sticker_uq.scene import InvalidInput, SceneAssessment, Status
from sticker_uq.testing.scripted_detector import ScriptedPerception, Seen

OperatorAnswers = namedtuple("OperatorAnswers", "available")
SETTINGS = PerceptionSettings(passes=4, device="cpu")


@pytest.fixture
def pictures(tmp_path):
    for number, seen in enumerate((Seen.STICKER, Seen.NOTHING, Seen.NOTHING, Seen.UNSURE, Seen.NAN)):
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.full((24, 32, 3), seen, np.uint8))
    (tmp_path / "2.png").write_bytes(b"broken")
    return open_source(tmp_path)


def test_two_processes_give_the_bytes_of_one_in_the_same_order(pictures):
    alone = list(one_by_one(pictures, ScriptedPerception(SETTINGS)))
    together = list(side_by_side(pictures, partial(ScriptedPerception, SETTINGS), 2))
    assert [item.name for item, _ in together] == [f"{number}.png" for number in range(5)]
    assert [scene.to_bytes() for _, scene in together] == [scene.to_bytes() for _, scene in alone]
    assert sum(len(scene.objects) for _, scene in alone) > 0
    assert [scene.status for _, scene in alone] == [Status.OK, Status.OK, Status.FAILED, Status.OK, Status.OK]


def test_what_keeps_a_process_from_starting_is_raised_here(pictures):
    load = partial(open_source, Path("nowhere"))
    with pytest.raises(InvalidInput, match="nowhere: no such file or folder"):
        next(side_by_side(pictures, load, 1))


@pytest.mark.parametrize(
    ("cores", "gigabytes", "images", "changes", "expected"),
    [
        (8, 64, 10_000, {}, 8),
        (8, 64, 10_000, {"threads": 2}, 4),
        (8, 64, 10_000, {"threads": 0}, 1),
        (8, 64, 10_000, {"threads": 16}, 1),
        (8, 7, 10_000, {}, 3),
        (8, 1, 10_000, {}, 1),
        (8, 64, 100, {}, 2),
        (8, 64, 0, {}, 1),
        (256, 999, 100_000, {}, 16),
        (8, 64, 10_000, {"device": "cuda:0"}, 1),
    ],
)
def test_as_many_processes_as_pay(monkeypatch, cores, gigabytes, images, changes, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(assessing.psutil, "virtual_memory", lambda: OperatorAnswers(gigabytes * 2**30))
    changed = SETTINGS.model_copy(update={"threads": 1} | changes)
    assert process_count(changed, images) == expected


class Together(ScriptedPerception):
    """A scripted perception that computes several images at once and keeps what it was given; refuses groups with CRASH."""

    def __init__(self, at_once: int) -> None:
        super().__init__(SETTINGS)
        self.images_at_once = at_once
        self.groups: list[list[Shot]] = []

    def assess_together(self, shots: Sequence[Shot], keep_saliency: bool = False) -> list[SceneAssessment]:
        assert keep_saliency
        assert len({shot.image.shape for shot in shots}) == 1
        assert 1 <= len(shots) <= self.images_at_once
        self.groups.append(list(shots))
        return super().assess_together(shots)

    def assess(self, image, *values, **more):  # type: ignore[no-untyped-def]
        if image[0, 0, 0] == Seen.CRASH:
            raise InvalidInput("image is refused")
        return super().assess(image, *values, **more)


class Listed(list[SourceImage]):
    continuous, topic = False, ""


@given(
    kinds=st.lists(st.sampled_from(["small", "wide", "tall", "unreadable", "refused"]), max_size=24),
    at_once=st.integers(1, 5),
)
@settings(deadline=None)
def test_images_of_one_size_are_assessed_together_and_come_in_order(kinds: list[str], at_once: int) -> None:
    shapes = {"small": (4, 4, 3), "wide": (4, 9, 3), "tall": (9, 4, 3), "refused": (4, 4, 3)}
    items = Listed(
        SourceImage(
            None
            if kind == "unreadable"
            else np.full(shapes[kind], Seen.CRASH if kind == "refused" else Seen.STICKER, np.uint8),
            number,
            "camera",
            str(number),
            "is no picture" if kind == "unreadable" else "",
        )
        for number, kind in enumerate(kinds)
    )
    perception = Together(at_once)
    found = list(one_by_one(items, perception))
    alone = list(one_by_one(items, Together(1)))
    assert [item.name for item, _ in found] == [item.name for item in items]
    assert [scene.to_bytes() for _, scene in found] == [scene.to_bytes() for _, scene in alone]
    assert [scene.status is Status.FAILED for _, scene in found] == [
        kind in ("unreadable", "refused") for kind in kinds
    ]
    if at_once > 1:
        stamps = sorted(shot.stamp_ns for group in perception.groups for shot in group)
        assert stamps == [number for number, kind in enumerate(kinds) if kind != "unreadable"]


def test_only_the_last_groups_of_each_size_are_not_full() -> None:
    items = Listed(
        SourceImage(np.full((4, 4 + n % 2, 3), Seen.NOTHING, np.uint8), n, "", str(n)) for n in range(16)
    )
    perception = Together(4)
    assert len(list(one_by_one(items, perception))) == 16
    assert [[shot.stamp_ns for shot in group] for group in perception.groups] == [
        [0, 2, 4, 6],
        [1, 3, 5, 7],
        [8, 10, 12, 14],
        [9, 11, 13, 15],
    ]


def test_no_image_waits_for_more_than_twice_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    class Endless(Listed):
        def __iter__(self):  # type: ignore[no-untyped-def]
            for n in itertools.count():
                read.append(n)
                yield SourceImage(np.full((4, 4 + min(n, 1), 3), Seen.NOTHING, np.uint8), n, "", str(n))

    assessed = one_by_one(Endless(), Together(4))
    assert next(assessed)[0].name == "0"
    assessed.close()
    # those that wait, and those that the threads are ahead
    assert len(read) <= 2 * 4 + 4 + 4 + 4 + 4


def test_processes_that_take_one_image_each_do_not_fill_up_groups_on_a_gpu() -> None:
    together = SETTINGS.model_copy(update={"images_at_once": 4})
    check_sharing(together)
    check_sharing(SETTINGS.model_copy(update={"device": "cuda:0"}))
    with pytest.raises(InvalidInput, match="images_at_once is 4, expected 1 where processes share"):
        check_sharing(together.model_copy(update={"device": "cuda:0"}))
