# SPDX-License-Identifier: Apache-2.0
"""What limits on two facts of a scene come to, counted from records; and what a sticker that is left is called."""

from typing import Any

import pytest

from benchmarks.left import KINDS, SEEN, ended, kinds, row, signals, table

STICKER = {"kind": KINDS[0], "kinds": [KINDS[0]], "seen": SEEN[0], "shorter side": 20.0}


def end(**changes: Any) -> dict[str, Any]:
    plain = {"asked": False, "clean": True, "wrongful": False, "left": [], "obstruction": 0.1, "missed": 0.1}
    return {**plain, "objectness": 0.0, "passes": 0.0, "one pass": 0.0, "four parts": 0.0, **changes}


DIRTY = end(left=[STICKER], missed=0.9)
BEHIND = end(left=[STICKER], obstruction=0.9, free=end())


@pytest.mark.parametrize(
    ("one", "limits", "asked", "left"),
    [
        (end(), (0.5, 0.5), False, 0),
        (DIRTY, (1.0, 1.0), False, 1),
        (DIRTY, (1.0, 0.5), True, 1),
        (BEHIND, (1.0, 0.5), False, 1),
        (BEHIND, (0.5, 1.0), False, 0),
        (end(obstruction=0.9), (0.5, 1.0), True, 0),  # nothing that goes away
        (end(obstruction=0.9, free=end(obstruction=0.9)), (0.5, 1.0), True, 0),
        (end(obstruction=0.9, asked=True, clean=False, free=end()), (0.5, 1.0), False, 0),
        (end(missed=float("nan")), (1.0, 0.5), True, 0),
    ],
)
def test_where_a_laptop_ends_under_limits(one, limits, asked, left):
    found = ended(one, *limits)
    assert (found["asked"], len(found["left"])) == (asked, left)


def test_what_was_wrong_before_the_wait_stays_wrong():
    assert ended({**BEHIND, "wrongful": True}, 0.5, 1.0)["wrongful"]


def test_counts_and_tables():
    ends = [end(), DIRTY, BEHIND, end(asked=True, clean=False)]
    before, after = row(ends), row(ends, 0.5, 0.5)
    assert (before["asked"], before["finished alone"], before["of these keep a sticker"]) == (1, 3, 2)
    assert (after["asked"], after["finished alone"], after["of these keep a sticker"], after["waited"]) == (
        2,
        2,
        0,
        1,
    )
    (kind,) = kinds(ends)
    assert (kind["kind"], kind["stickers"], kind[SEEN[0]]) == (KINDS[0], 2, 2)
    missed = next(one for one in signals(ends) if one["signal"] == "missed")
    assert missed["found"] == "1 of 2"
    assert table({"study_limits": [before]}).count("|") > 20
