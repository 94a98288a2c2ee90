# SPDX-License-Identifier: Apache-2.0
"""The options of white-box attacks, of ``dataset attack`` and ``study``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sticker_uq.cli.options import checked
from sticker_uq.scene import InvalidInput

if TYPE_CHECKING:
    from sticker_uq.lab.attacks.white_box import AttackSettings

ATTACK_HELP = "dag: Dense Adversary Generation, as published; pgd: projected gradient descent, with a bound on every pixel."


def attack_settings(method: str, values: Mapping[str, Any]) -> AttackSettings:
    """Settings of the attack ``method`` from command line options, None where one was not given.

    Raises InvalidInput for an unknown method, and for an option that is out of range or belongs to another method.
    """
    from sticker_uq.lab.attacks.methods import METHODS  # only these commands need torch

    if method not in METHODS:
        raise InvalidInput(f"--attack {method!r}: expected {' or '.join(METHODS)}")
    given = {name: value for name, value in values.items() if value is not None}
    foreign = [f"--{name}" for name in given if name not in METHODS[method].model_fields]
    if foreign:
        raise InvalidInput(f"{', '.join(foreign)}: no option of --attack {method}")
    return checked(METHODS[method], given)
