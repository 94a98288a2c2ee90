# SPDX-License-Identifier: Apache-2.0
"""The methods of white-box attacks by name."""

from typing import Annotated

from pydantic import Field

from sticker_uq.lab.attacks.dag import DagSettings
from sticker_uq.lab.attacks.pgd import PgdSettings
from sticker_uq.lab.attacks.white_box import AttackSettings

METHODS: dict[str, type[AttackSettings]] = {"dag": DagSettings, "pgd": PgdSettings}
AnyAttack = Annotated[DagSettings | PgdSettings, Field(discriminator="method")]
