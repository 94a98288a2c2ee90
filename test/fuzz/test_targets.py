# SPDX-License-Identifier: Apache-2.0
"""A short run of every target, and what was found before."""

import importlib
import os
import re

import hypothesis
import pytest

from test.fuzz.examples import ROOT
from test.fuzz.targets import TARGETS, kept, tried

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))


@pytest.mark.parametrize("name", TARGETS)
def test_it_takes_what_works(name, tmp_path):
    target = TARGETS[name]
    seeds = [*target.seeds(), *map(target.written, target.documents())]
    assert any(tried(target, seed, tmp_path / "input") for seed in seeds)


@pytest.mark.parametrize(
    "file",
    [file for name in TARGETS for file in kept(name)],
    ids=lambda file: f"{file.parent.name}-{file.stem}",
)
def test_what_it_once_failed_with_is_refused_or_taken(file, tmp_path):
    tried(TARGETS[file.parent.name], file.read_bytes(), tmp_path / "input")


@pytest.mark.parametrize("name", TARGETS)
def test_it_takes_or_refuses_whatever_comes(name, tmp_path):
    target = TARGETS[name]

    @hypothesis.given(target.inputs())
    @hypothesis.settings(
        max_examples=round(EXAMPLES * target.share), database=None, derandomize=EXAMPLES == 60
    )
    def run(data):
        tried(target, data, tmp_path / "input")

    run()


def test_the_limits_of_files_are_documented_as_they_are():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.partition("## Files from others")[2].partition("\nNot bounded")[0]
    limits = re.findall(r"\| (\d+)( MiB)? \| `([\w.]+)\.(\w+)` \|$", table, re.MULTILINE)
    assert len(limits) > 10  # else the table is written in another way
    for number, unit, module, name in limits:
        assert getattr(importlib.import_module(module), name) == int(number) * (2**20 if unit else 1), name
