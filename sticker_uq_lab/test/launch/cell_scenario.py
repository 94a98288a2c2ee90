# SPDX-License-Identifier: Apache-2.0
"""The launch file of the cell, in launch_testing's own form.

test_launch.py runs it with a ``params_file`` that asks little of the machine; by hand, from the repository's root::

    python -m launch_testing.launch_test sticker_uq_lab/test/launch/cell_scenario.py
"""

import contextlib
import unittest

from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch_testing import post_shutdown_test
from launch_testing.actions import ReadyToTest
from launch_testing.asserts import assertExitCodes

from sticker_uq.io.share import share_folder
from sticker_uq.testing.bench import run_bench
from test.helpers.cell import CellWatch


def generate_test_description() -> LaunchDescription:
    cell = PythonLaunchDescriptionSource(str(share_folder() / "launch" / "cell.launch.py"))
    return LaunchDescription(
        [IncludeLaunchDescription(cell, launch_arguments=[("sim", "true")]), ReadyToTest()]
    )


class WhileItRuns(unittest.TestCase):
    def setUp(self):
        self._stack = contextlib.ExitStack()
        self.addCleanup(self._stack.close)
        self._watch = CellWatch(self._stack.enter_context(run_bench()))

    def test_cell_comes_up(self):
        self._watch.assert_comes_up()


@post_shutdown_test()
class AfterShutdown(unittest.TestCase):
    def test_every_node_ends_with_0(self, proc_info):
        names = {name.rpartition("-")[0] for name in proc_info.process_names()}
        assert names == {"detector", "supervisor", "cell_sim"}
        assertExitCodes(proc_info, allowable_exit_codes=[0])
