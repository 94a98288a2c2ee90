"""Several processes say exactly what one says, in the same order."""

from __future__ import annotations

import os
from collections import namedtuple
from functools import partial

import cv2
import pytest

from sticker_uq.cli.replay import load_perception
from sticker_uq.evaluation.replay import assessing
from sticker_uq.evaluation.replay.assessing import one_by_one, process_count, side_by_side
from sticker_uq.io.sources import open_source
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, Status

OperatorAnswers = namedtuple("OperatorAnswers", "available")
SETTINGS = PerceptionSettings(passes=4, device="cpu")


@pytest.fixture
def pictures(tmp_path):
    for seed in range(5):
        cv2.imwrite(str(tmp_path / f"{seed}.png"), render(sample_scene(seed), (320, 240)).image)
    (tmp_path / "2.png").write_bytes(b"broken")
    return open_source(tmp_path)


def test_two_processes_give_the_bytes_of_one_in_the_same_order(pictures):
    alone = list(one_by_one(pictures, load_perception(SETTINGS)))
    together = list(side_by_side(pictures, partial(load_perception, SETTINGS), 2))
    assert [item.name for item, _ in together] == [f"{seed}.png" for seed in range(5)]
    assert [scene.to_bytes() for _, scene in together] == [scene.to_bytes() for _, scene in alone]
    assert sum(len(scene.objects) for _, scene in alone) > 0
    assert [scene.status for _, scene in alone] == [Status.OK, Status.OK, Status.FAILED, Status.OK, Status.OK]


def test_what_keeps_a_process_from_starting_is_raised_here(pictures):
    load = partial(load_perception, SETTINGS.model_copy(update={"weights": "nowhere.safetensors"}))
    with pytest.raises(InvalidInput, match=r"nowhere\.safetensors"):
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
    settings = SETTINGS.model_copy(update={"threads": 1} | changes)
    assert process_count(settings, images) == expected
