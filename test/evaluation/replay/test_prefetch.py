# SPDX-License-Identifier: Apache-2.0
"""Threads that run ahead: in order, no farther than asked, gone when nobody wants more; and what is counted meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Generator
from itertools import count, islice

import numpy as np
import pyarrow.parquet as pq
import pytest

from sticker_uq.evaluation.replay import tables
from sticker_uq.evaluation.replay.assessing import ahead
from sticker_uq.evaluation.replay.findings import COURSES, Tally
from sticker_uq.scene import METRICS


def test_everything_comes_in_order_through_two_threads() -> None:
    squares = ahead((n * n for n in ahead(range(500), 3, "first")), 2, "second")
    assert list(squares) == [n * n for n in range(500)]


def test_it_runs_ahead_and_no_farther() -> None:
    taken = threading.Semaphore(0)
    made = []

    def numbers() -> Generator[int, None, None]:
        for number in count():
            made.append(number)
            taken.release()
            yield number

    running = ahead(numbers(), 3, "numbers")
    assert next(running) == 0
    for _ in range(5):  # 0, three that wait, and one in the thread's hand
        assert taken.acquire(timeout=60)
    assert len(made) == 5
    running.close()
    assert len(made) == 5


def test_an_error_comes_after_the_items_before_it() -> None:
    def broken() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise OSError("the disk is gone")

    running = ahead(ahead(broken(), 1, "inner"), 4, "outer")
    assert [next(running), next(running)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(running)


def test_whoever_leaves_early_ends_all_threads_and_closes_what_is_read() -> None:
    closed = threading.Event()

    def endless() -> Generator[int, None, None]:
        try:
            yield from count()
        finally:
            closed.set()

    running = ahead((n for n in ahead(endless(), 2, "left alone")), 2, "left alone too")
    assert list(islice(running, 3)) == [0, 1, 2]
    running.close()
    assert not [t for t in threading.enumerate() if t.name == "left alone too"]
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


def test_the_tally_counts_and_keeps_the_courses(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_table_grows_in_pieces(tmp_path, monkeypatch, suffix) -> None:
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


def test_a_table_that_fails_is_not_there(tmp_path) -> None:
    def broken() -> None:
        with tables.table_writer(tables.IMAGE_SCHEMA, tmp_path / "images.parquet") as append:
            append([row()])
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        broken()
    assert not list(tmp_path.iterdir())
