"""Supervisors: scores of how little one object's classification can be trusted, behind one interface.

Not to be confused with the *node* called supervisor and the room ``supervision``, which decide whether the arm may move:
what is here gives each object a number, what is there turns numbers into a permit.
"""

from sticker_uq.monitors.files import load_supervisor, save_supervisor
from sticker_uq.monitors.interface import Supervisor, measure_cost
from sticker_uq.monitors.objects import Objects, concatenate
from sticker_uq.monitors.registry import MODERN, PAPER, SUPERVISORS, supervisor_named

__all__ = [
    "MODERN",
    "PAPER",
    "SUPERVISORS",
    "Objects",
    "Supervisor",
    "concatenate",
    "load_supervisor",
    "measure_cost",
    "save_supervisor",
    "supervisor_named",
]
