# SPDX-License-Identifier: Apache-2.0
"""What is said of a value that a model refuses, in the words of this package."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sticker_uq.io.setting_fields import words


class Lamp(BaseModel):
    model_config = ConfigDict(extra="forbid")
    watts: float = Field(5.0, ge=1, le=100)
    colour: Literal["white", "warm"] = "white"


class Hall(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    lamps: tuple[Lamp, ...] = Field((), max_length=2)
    door: Lamp | None = None

    @model_validator(mode="after")
    def _never_dark(self) -> "Hall":
        if self.name == "dark":
            raise ValueError("a hall without light")
        return self


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "missing"),
        ({"name": "dark"}, "a hall without light"),
        ({"name": "hall", "lamp": []}, "unknown name, did you mean lamps?"),
        ({"name": "hall", "garden": 1}, "unknown name"),
        ({"name": "hall", "lamps": [{"wats": 3}]}, "unknown name, did you mean watts?"),
        ({"name": "hall", "door": {"color": "warm"}}, "unknown name, did you mean colour?"),
        ({"name": "hall", "door": {"watts": 0}}, "expected at least 1"),
        ({"name": "hall", "door": {"watts": "much"}}, "expected a valid number, unable to parse string as a number"),
        ({"name": "hall", "door": {"colour": "red"}}, "expected 'white' or 'warm'"),
        ({"name": "hall", "lamps": [{}] * 3}, "expected at most 2 items, not 3"),
    ],
)  # fmt: skip
def test_refusals_say_what_was_expected_and_which_name_is_near(given, said):
    with pytest.raises(ValidationError) as refused:
        Hall.model_validate(given)
    assert [words(problem, Hall) for problem in refused.value.errors()] == [said]
