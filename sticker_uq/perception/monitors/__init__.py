# SPDX-License-Identifier: Apache-2.0
"""Misclassification monitors (S001) and their panel at run time: scores of how little an object's class can be trusted; crop
classifier, task networks.

Weiss et al. (2022) call them supervisors. Here the monitor is the ROS node that runs policy and gate.
"""

from sticker_uq.perception.monitors.folder import load_monitor, save_monitor
from sticker_uq.perception.monitors.interface import Monitor, Objects, concatenate, measure_cost
from sticker_uq.perception.monitors.registry import MODERN, MONITORS, PAPER, monitor_named

__all__ = [
    "MODERN",
    "MONITORS",
    "PAPER",
    "Monitor",
    "Objects",
    "concatenate",
    "load_monitor",
    "measure_cost",
    "monitor_named",
    "save_monitor",
]
