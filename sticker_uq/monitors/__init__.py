"""Misclassification monitors of single objects (S001 calls them supervisors), behind one interface.

A monitor scores how untrustworthy the class of one object is. The node ``supervisor`` and :mod:`sticker_uq.gate` decide on
permits.
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
