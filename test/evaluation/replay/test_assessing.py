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
import pyarrow.parquet as pq
import pytest

from sticker_uq.evaluation.replay import assessing, tables
from sticker_uq.evaluation.replay.assessing import ahead, one_by_one, process_count, side_by_side
from sticker_uq.evaluation.replay.findings import COURSES, Tally
from sticker_uq.io.sources import open_source
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import METRICS, InvalidInput, Status
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
    changed = SETTINGS.model_copy(update={"threads": 1} | changes)
    assert process_count(changed, images) == expected


def test_everything_comes_in_order_through_two_threads():
    squares = ahead((n * n for n in ahead(range(500), 3, "first")), 2, "second")
    assert list(squares) == [n * n for n in range(500)]


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


def row(**values: object) -> tables.Row:
    plain: dict[str, object] = dict.fromkeys(tables.IMAGE_SCHEMA.names, 0)
    texts = {
        "image": "a",
        "frame_id": "",
        "cell": "",
        "laptop": "",
        "status": "OK",
        "status_text": "",
        "outcome": "WORK",
        "reasons": "",
    }
    texts |= {"decision_id": "", "image_digest": "", "assessment_digest": ""}
    return plain | texts | {"timings_ms": {}} | values


def test_the_tally_counts_and_keeps_the_courses(monkeypatch):
    clock = iter([10.0])
    monkeypatch.setattr("sticker_uq.evaluation.replay.findings.perf_counter", lambda: next(clock))
    tally = Tally()
    assert np.isnan(tally.model_busy(1.0, 1))
    for number in range(1, 61):
        tally.add(
            row(image=str(number), objects=number, dil=0.5, timings_ms={"encode": number, "cluster": 7.0})
        )
    for number in range(55):
        tally.add(row(image=f"bad{number}", status="FAILED", status_text="?", outcome="BLOCKED", dil=np.nan))
    assert (tally.images, tally.failed, tally.objects) == (115, 55, 60 * 61 // 2)
    assert tally.outcomes == {"WORK": 60, "BLOCKED": 55}
    assert [name for name, _ in tally.failures] == [f"bad{n}" for n in range(50)]
    assert set(tally.courses) == set(COURSES)
    assert list(tally.courses["objects"])[:3] == [1, 2, 3]
    assert tally.medians() == {"encode": 30.5, "cluster": 7.0}
    # all but the first image, clustering not counted: 2 + 3 + ... + 60 ms of 4 s in 2 processes
    assert tally.model_busy(14.0, 2) == pytest.approx((60 * 61 / 2 - 1) * 1e-3 / 8)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_table_grows_in_pieces(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(tables, "_ROW_GROUP", 3)
    path = tmp_path / f"images.{suffix}"
    with tables.table_writer(tables.IMAGE_SCHEMA, path) as append:
        assert not path.exists()
        for number in range(10):
            append([row(image=str(number), **dict.fromkeys(METRICS, 0.1 * number))])
    if suffix == "csv":
        assert [line.split(",")[0] for line in path.read_text().splitlines()] == [
            "image",
            *map(str, range(10)),
        ]
        return
    read = pq.ParquetFile(path)
    assert read.metadata.num_row_groups == 4
    assert read.read()["image"].to_pylist() == [str(n) for n in range(10)]


def test_a_table_that_fails_is_not_there(tmp_path):
    def broken() -> None:
        with tables.table_writer(tables.IMAGE_SCHEMA, tmp_path / "images.parquet") as append:
            append([row()])
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        broken()
    assert not list(tmp_path.iterdir())
