# SPDX-License-Identifier: Apache-2.0
"""A process whose executor stands still ends, and says where it stood; one that works, loads or was stopped does not."""

import subprocess
import sys

import pytest

from sticker_uq.nodes.common.watchdog import Watchdog

BLOCKED = """
import ctypes, sys, threading, time
from sticker_uq.nodes.common.watchdog import Watchdog
watchdog = Watchdog("/detector", beat_s=0.05, patience=4)
watchdog.start()
for _ in range(8):
    watchdog.beat()
    time.sleep(0.05)
def stand_in_the_middleware():
    {call}
print("works", flush=True)
stand_in_the_middleware()
"""
CALLS = {
    "waiting": "threading.Lock().acquire() and threading.Event().wait()",
    "keeping the interpreter": "ctypes.PyDLL(None).sleep(60)",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_process_that_stands_still_ends_and_says_where(call):
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(call=call)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stdout == "works\n"
    assert "stand_in_the_middleware" in ended.stderr
    if "Event" in call:
        assert "[/detector]: giving up: the executor has stood still" in ended.stderr


def test_work_that_takes_its_time_is_no_standstill():
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "import time\n"
            "from sticker_uq.nodes.common.watchdog import Watchdog\n"
            "watchdog = Watchdog('/detector', beat_s=0.02, patience=3)\n"
            "watchdog.start()\n"
            "with watchdog.pause():\n"
            "    time.sleep(0.5)\n"
            "watchdog.end()\n"
            "time.sleep(0.3)\n",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (told.returncode, told.stderr) == (0, "")


def test_an_end_that_deadlocks_is_an_end_too():
    script = (
        "import threading\n"
        "from sticker_uq.nodes.common.watchdog import Watchdog\n"
        "watchdog = Watchdog('/detector', beat_s=0.05)\n"
        "watchdog.start()\n"
        "with watchdog.pause():\n"
        "    watchdog.expect_end(0.2)\n"
        "    threading.Event().wait()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr


def test_the_end_may_come_before_the_start():
    Watchdog("/detector").end()
