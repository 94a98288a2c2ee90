# SPDX-License-Identifier: Apache-2.0
"""Several processes say exactly what one says, in the same order.

The perception is scripted: that the real one says the same in every process is shown by test/cli/test_replay.py.
"""

import multiprocessing
import os
import threading
import time
from collections import namedtuple
from collections.abc import Generator
from functools import partial
from itertools import count, islice
from pathlib import Path

import cv2
import numpy as np
import pytest

from sticker_uq.evaluation.replay import assessing
from sticker_uq.evaluation.replay.assessing import ahead, one_by_one, process_count, side_by_side
from sticker_uq.io.sources import open_source
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, Status
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


class OneAlone(ScriptedPerception):
    """Assesses the first image, and no other for a very long time."""

    def assess(self, image, *given, **more):
        if image[0, 0, 0] != Seen.STICKER:
            time.sleep(3600.0)
        return super().assess(image, *given, **more)


def test_whoever_stops_does_not_wait_for_what_the_processes_have_begun(pictures):
    context = multiprocessing.get_context("forkserver")
    event = context.Event()
    other = context.Process(target=event.wait)  # of whoever replays: it must go on
    other.start()
    assessed = side_by_side(pictures, partial(OneAlone, SETTINGS), 2)
    next(assessed)
    with pytest.raises(KeyboardInterrupt):
        assessed.throw(KeyboardInterrupt())
    assert multiprocessing.active_children() == [other]
    event.set()
    other.join()
    assert other.exitcode == 0


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
    assert process_count(SETTINGS.model_copy(update={"threads": 1} | changes), images) == expected


def test_it_runs_ahead_and_no_farther():
    taken = threading.Semaphore(0)
    made = []

    def numbers() -> Generator[int, None, None]:
        for number in count():
            made.append(number)
            taken.release()
            yield number

    running = ahead(numbers(), 3, "numbers")
    assert next(running) == 0
    for _ in range(4):  # 0, and three that wait
        assert taken.acquire(timeout=60)
    running.close()
    assert len(made) == 4


def test_an_error_comes_after_the_items_before_it():
    def broken() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise OSError("the disk is gone")

    running = ahead(ahead(broken(), 1, "inner"), 4, "outer")
    assert [next(running), next(running)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(running)


def test_whoever_leaves_early_ends_all_threads_and_closes_what_is_read():
    closed = threading.Event()

    def endless() -> Generator[int, None, None]:
        try:
            yield from count()
        finally:
            closed.set()

    running = ahead((n for n in ahead(endless(), 2, "left alone")), 2, "left alone too")
    assert list(islice(running, 3)) == [0, 1, 2]
    running.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("left alone too")]
    assert closed.wait(60), "the inner source is closed as well"
