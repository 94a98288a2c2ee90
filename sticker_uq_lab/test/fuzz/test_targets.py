# SPDX-License-Identifier: Apache-2.0
"""A short run of every target of the lab, and what was found before."""

from pathlib import Path

import pytest

from lab_helpers.fuzz_targets import TARGETS
from test.fuzz.targets import kept, tried
from test.fuzz.test_targets import check_documented_limits, fuzz

SEEDS = Path(__file__).parent / "seeds"


@pytest.mark.parametrize("name", TARGETS)
def test_it_takes_what_works(name, tmp_path):
    target = TARGETS[name]
    seeds = [*target.seeds(), *map(target.written, target.documents())]
    assert any(tried(target, seed, tmp_path / "input") for seed in seeds)


@pytest.mark.parametrize(
    "file",
    [file for name in TARGETS for file in kept(name, SEEDS)],
    ids=lambda file: f"{file.parent.name}-{file.stem}",
)
def test_what_it_once_failed_with_is_refused_or_taken(file, tmp_path):
    tried(TARGETS[file.parent.name], file.read_bytes(), tmp_path / "input")


@pytest.mark.parametrize("name", TARGETS)
def test_it_takes_or_refuses_whatever_comes(name, tmp_path):
    fuzz(TARGETS[name], tmp_path / "input")


def test_the_limits_of_files_are_documented_as_they_are():
    check_documented_limits("sticker_uq_lab.", least=2)
