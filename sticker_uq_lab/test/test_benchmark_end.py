# SPDX-License-Identifier: Apache-2.0
"""Laptops peeled to their end: the picture follows what is released, and the table counts what became of them."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import to_the_end
from benchmarks.to_the_end import BARE, COUNTS, End, Job, jobs_of, row, table
from benchmarks.trade import TEST
from sticker_uq.gate import Policy
from sticker_uq.scene import ObjectClass
from sticker_uq.testing.scenes import assessment, object_at
from sticker_uq_lab.rendering import render, sample_scene

SEED, SIZE = 5, (320, 240)
OPEN = Policy(max_dil=1.0, max_dil_clean=1.0)


@pytest.fixture
def stickers():
    truth = render(sample_scene(SEED), SIZE)
    boxes = truth.boxes[truth.labels == ObjectClass.STICKER]
    assert len(boxes) >= 2
    return boxes


def followed(monkeypatch, *looks, circumstance="clean"):
    """What becomes of the laptop where one look after the other sees stickers at these boxes."""
    seen = [assessment(*(object_at(tuple(box)) for box in look)) for look in looks]
    perception = SimpleNamespace(assess=lambda image: seen.pop(0))
    monkeypatch.setattr(to_the_end, "_cell", lambda policy: (perception, OPEN))
    monkeypatch.setitem(to_the_end.SIZES, "large", SIZE)
    end = to_the_end.to_the_end(Job(SEED, "large", circumstance), Path())
    assert not seen
    return end


def test_the_next_picture_is_without_what_was_released(monkeypatch, stickers):
    end = followed(monkeypatch, stickers[:1], stickers[1:], [])
    assert (end.asked, end.wrongful, end.first_asked, end.first_left) == (False, False, False, True)
    assert (end.peeled, end.left) == (len(stickers), 0)


def test_a_sticker_that_no_look_sees_leaves_with_the_laptop(monkeypatch, stickers):
    end = followed(monkeypatch, stickers[:1], [])
    assert (end.asked, end.peeled, end.first_left) == (False, 1, True)
    assert end.left >= len(stickers) - 1  # what lay under the peeled one may show now


def test_what_is_no_sticker_does_harm_and_ends_it(monkeypatch):
    end = followed(monkeypatch, [(0, 0, 12, 12)])
    assert (end.wrongful, end.by_overlap, end.peeled) == (True, True, 0)


def test_no_two_laptops_have_a_seed_in_common_and_none_was_used_to_choose():
    seeds = [job.seed for job in jobs_of(COUNTS)]
    assert len(set(seeds)) == len(seeds) == 2 * sum(COUNTS.values())
    text = Path("scripts/rendered_policy").read_text(encoding="utf-8")
    fit, proof = map(int, re.findall(r"^laptops --.* (\d{9}) ", text, re.MULTILINE))
    calibrated = [range(first, first + 2_000_000) for first in (fit, proof)]  # each case has seeds of its own
    others = [*calibrated, *(range(first, first + 20_000) for first, _ in TEST.values())]
    assert not any(seed in one for one in others for seed in seeds)


def test_bare_laptops_have_a_line_of_their_own():
    clean, dirty, asked = (
        End(False, False, False, 2, 0, False, False),
        End(False, True, False, 1, 1, True, True),
        End(True, False, False, 0, 3, True, True),
    )
    bare = End(False, False, False, 0, 0, False, False)
    found = [clean] * 8 + [dirty, asked]
    shown = row("study", "clean", [*found, bare])
    assert shown[2:] == [11, 1, 1, "31 %", 0, "1 of 9", "36.8 %", 2, "0 of 8"]
    rows = table(
        [(Job(n, "study", name), one) for n, (name, one) in enumerate([("clean", clean), (BARE, bare)])]
    )
    assert [one[:3] for one in rows[:2]] == [["study", "clean", 1], ["study", BARE, 1]]
    assert rows[1][7] == "0 of 0"
    assert np.isin("all but clean and bare", [one[1] for one in rows])
