# SPDX-License-Identifier: Apache-2.0
"""A short run of every target, and what was found before."""

import importlib
import os
import re
from pathlib import Path

import hypothesis
import pytest

from test.fuzz.examples import ROOT
from test.fuzz.targets import TARGETS, Target, kept, tried

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
    fuzz(TARGETS[name], tmp_path / "input")


def fuzz(target: Target, folder: Path) -> None:
    """A short run."""

    @hypothesis.given(target.inputs())
    @hypothesis.settings(
        max_examples=round(EXAMPLES * target.share), database=None, derandomize=EXAMPLES == 60
    )
    def run(data):
        tried(target, data, folder)

    run()


def test_the_limits_of_files_are_documented_as_they_are():
    check_documented_limits("sticker_uq.", least=10)


def check_documented_limits(package: str, least: int) -> None:
    """Those of ``package`` in docs/security.md are its constants."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.partition("## Files from others")[2].partition("\nNot bounded")[0]
    limits = re.findall(r"\| (\d+)( MiB)? \| `([\w.]+)\.(\w+)` \|$", table, re.MULTILINE)
    limits = [limit for limit in limits if limit[2].startswith(package)]
    assert len(limits) >= least  # else the table is written in another way
    for number, unit, module, name in limits:
        assert getattr(importlib.import_module(module), name) == int(number) * (2**20 if unit else 1), name
