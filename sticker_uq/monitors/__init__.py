"""Monitors: scores of how little one object's classification can be trusted, behind one interface.

Paper S001 calls them supervisors. Not to be confused with the ROS node called supervisor and the package ``gate``, which decide
whether the arm may move: a monitor gives each object a number, the gate turns numbers into a permit.
"""

from sticker_uq.monitors.files import load_monitor, save_monitor
from sticker_uq.monitors.interface import Monitor, measure_cost
from sticker_uq.monitors.objects import Objects, concatenate
from sticker_uq.monitors.registry import MODERN, MONITORS, PAPER, monitor_named

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
