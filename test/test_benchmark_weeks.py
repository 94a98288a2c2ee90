# SPDX-License-Identifier: Apache-2.0
"""What the simulated weeks are said to show is counted as said."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.weeks import promised, table

PROMISE = "wrongful removal <= 0.1 at 0.9 (n = 40)"


def week(number: int, wrongful: int, verdict: str = "", guarantee: str = "", seed: int = 0) -> dict[str, Any]:
    return {
        "arm": "improve",
        "seed": seed,
        "week": number,
        "laptops": 60,
        "questions": 30,
        "objects": 90,
        "wrongful": wrongful,
        "dirty": 0,
        "verdict": verdict,
        "guarantee": guarantee,
        "minutes": 5.0,
    }


def test_a_promise_counts_from_the_week_after_it_was_made_until_another_bundle_is_promoted() -> None:
    rows = [
        week(0, 9),
        week(1, 9, "better", PROMISE),
        week(2, 6),  # 10 % is kept
        week(3, 7, "worse", ""),  # broken; not promoted
        week(4, 7, "cannot tell yet", ""),  # broken
        week(5, 20),  # nothing is promised
        week(0, 20, "cannot tell yet", PROMISE, seed=1),
        week(1, 0, seed=1),
    ]
    assert promised(rows, "improve") == (4, 2)
    assert promised(rows, "without") == (0, 0)
    assert "2 of 4" in table(rows)
    # weeks 3 to 5 of seed 0: 34 wrongful of 180 laptops
    assert re.search(
        r"\| 0 +\| improve +\| 50 \(42 to 58\) +\| 150 +\| 19 \(13 to 25\)", table(rows, "second_half")
    )
