# SPDX-License-Identifier: Apache-2.0
"""Work that is spread comes back whole, in any order; what goes wrong elsewhere is raised here as what it is."""

import math
import multiprocessing
import operator
import os
import re
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import psutil
import pytest

from sticker_uq.evaluation.executors import executor, worker_pool
from sticker_uq.scene import InvalidInput


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_work_is_done_and_what_it_raises_is_raised(jobs):
    with executor(jobs) as execute:
        assert sorted(execute(operator.neg, range(30))) == list(range(-29, 1))
        with pytest.raises(ValueError, match="math domain error"):
            list(execute(math.sqrt, [1.0, -1.0]))
        assert list(execute(operator.neg, [])) == []


def test_no_more_work_is_taken_than_is_handed_out():
    numbers = count()
    with executor(2) as execute:
        found = execute(operator.neg, numbers)
        next(found)
        assert next(numbers) < 20


def test_a_killed_process_is_one_line():
    with (
        pytest.raises(OSError, match="was killed, perhaps for lack of memory") as raised,
        executor(2) as execute,
    ):
        list(execute(os._exit, [9]))
    assert raised.value.strerror


def touch_and_sleep(file):
    file.touch()
    time.sleep(600)


def test_an_interruption_does_not_wait_for_work_that_takes_hours(tmp_path):
    started = [tmp_path / "1", tmp_path / "2"]

    def work():
        yield from (*started, tmp_path / "3")
        while not all(file.exists() for file in started):
            time.sleep(0.05)
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), executor(2) as execute:
        list(execute(touch_and_sleep, work()))
    assert time.monotonic() - begun < 300
    assert multiprocessing.active_children() == []


def large(_):
    return bytes(24 << 20)


def test_an_exception_does_not_wait_for_the_rest_of_a_result():
    def fail():
        with worker_pool(2, imports=()) as pool:
            under_way = [pool.submit(large, number) for number in range(6)]
            under_way[0].result()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()


def hold(file):
    try:
        file.touch()
        pipe = os.open(file.with_name("begun"), os.O_WRONLY)
        os.write(pipe, f"{os.getpid()} {file}\n".encode())
        time.sleep(600)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # as a pool that lost a process ends the others once more
        file.rename(file.with_suffix(".undone"))


def test_a_terminated_process_undoes_its_work_and_begins_no_other(tmp_path):
    files = [tmp_path / str(number) for number in range(6)]
    os.mkfifo(tmp_path / "begun")
    ended = []

    def work():
        yield from files[:5]
        with open(os.open(tmp_path / "begun", os.O_RDWR), "rb", buffering=0) as begun:
            first, second = begun.readline().split(), begun.readline().split()
        assert first != second
        ended.append(Path(first[1].decode()))
        os.kill(int(first[0]), signal.SIGTERM)
        yield files[5]

    with pytest.raises(OSError, match="was killed"), executor(2) as execute:
        list(execute(hold, work()))
    assert ended[0].with_suffix(".undone").exists()
    assert not any(file.exists() for file in files[2:])


def test_no_process_outlives_a_parent_that_was_killed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\n"
        "from sticker_uq.evaluation.executors import map_over\n"
        "def work(_):\n"
        "    os.write(1, f'{os.getpid()}\\n'.encode())\n"
        "    time.sleep(3600)\n"
        "if __name__ == '__main__':\n"
        "    list(map_over(work, range(2), 2))\n"
    )
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as parent:
        workers = [psutil.Process(int(parent.stdout.readline())) for _ in range(2)]
        parent.kill()
    assert not psutil.wait_procs(workers, timeout=60)[1]


def test_no_cluster_there_is_said_before_any_work():
    pytest.importorskip("ray", reason="Ray is an optional dependency: pip install ray")
    said = re.escape("--ray-address 127.0.0.1:1: expected the address of a Ray cluster (")
    with pytest.raises(InvalidInput, match=said), executor(1, "127.0.0.1:1"):
        pass
