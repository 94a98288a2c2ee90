# SPDX-License-Identifier: Apache-2.0
"""The limits that the documentation promises are those of the code."""

from __future__ import annotations

import importlib
import re

from test.fuzz.examples import ROOT


def test_the_limits_of_files_are_documented_as_they_are():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.partition("## Files from others")[2].partition("\nNot bounded")[0]
    limits = re.findall(r"\| (\d+)( MiB)? \| `([\w.]+)\.(\w+)` \|$", table, re.MULTILINE)
    assert len(limits) > 10  # else the table is written in another way
    for number, unit, module, name in limits:
        found = getattr(importlib.import_module(module), name)
        assert found == int(number) * (2**20 if unit else 1), name
