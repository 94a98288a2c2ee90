# SPDX-License-Identifier: Apache-2.0
"""The executables: how a process ends that has not become a node yet."""

import signal
import subprocess
import sys
import textwrap

import rclpy

from sticker_uq.nodes.common import lifecycle
from sticker_uq.testing.bench import PATIENCE_S

LOADS_FOREVER = """
    import importlib, signal
    from sticker_uq.nodes.__main__ import run_executable

    def import_module(name):
        print(f"loading {name}", flush=True)
        while True:
            signal.pause()

    importlib.import_module = import_module
    run_executable("detector")
"""


def test_a_signal_while_libraries_are_loaded_ends_the_process_quietly():
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(LOADS_FOREVER)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "loading sticker_uq.nodes.detector.node\n"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, rest) == (0, "")


def test_a_signal_after_the_node_is_destroyed_is_ignored(bench):
    """Ctrl-C at a terminal reaches a node twice: from the terminal and from launch."""
    node = rclpy.create_node("leaves")
    stop = lifecycle._Stop(node)
    node.destroy_node()
    stop.request(0)
    stop.request(1)
    assert stop.code == 0
