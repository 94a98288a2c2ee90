# SPDX-License-Identifier: Apache-2.0
"""docs/parameters.md is what the models say."""

from pathlib import Path

from sticker_uq.cli.parameter_docs import SECTIONS, parameter_reference

ROOT = Path(__file__).parents[2]


def test_the_reference_is_current():
    written = (ROOT / "docs" / "parameters.md").read_text()
    assert written == parameter_reference(), "run: python -m sticker_uq.cli.parameter_docs docs/parameters.md"


def test_every_parameter_is_described():
    for title, _, model in SECTIONS:
        for name, info in model.model_fields.items():
            assert info.description, f"{title}: {name} has no description"
