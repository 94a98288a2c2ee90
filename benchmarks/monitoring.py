# SPDX-License-Identifier: Apache-2.0
"""How soon spot checks show that a policy's promise is broken: the supervisor's bet beside MAPIE's risk monitoring.

    python -m benchmarks.monitoring

Losses (0 or 1) of a true rate come in one by one; both tests hold "the rate is at most what was promised" and may be wrong about
that with the same probability, however long they watch.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from mapie.exchangeability_testing import RiskMonitoring
from mapie.risk_control import BinaryRisk

from sticker_uq.gate.assumptions.martingale import RiskTest
from sticker_uq.scene import FloatArray

RATES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2)


def bet(losses: FloatArray, limit: float, level: float) -> int:
    """Number of the loss at which the bet raises the alarm, 0 when it never does."""
    test = RiskTest(limit)
    for number, loss in enumerate(losses, 1):
        test.observe(float(loss))
        if test.log_evidence >= -math.log(level):
            return number
    return 0


def mapie(losses: FloatArray, limit: float, level: float) -> int:
    """The same by MAPIE."""
    risk = BinaryRisk(
        risk_occurrence=lambda y_true, y_pred: y_true != y_pred,
        risk_condition=lambda y_true, y_pred: np.ones(len(y_true), bool),
        higher_is_better=False,
    )
    # half of MAPIE's level is for a reference set, which a promise needs none of
    monitor = RiskMonitoring(risk, test_level=2 * level, threshold=limit, warn=False)
    monitor.update(losses.astype(int), np.zeros(len(losses), int))
    above = monitor.online_risk_lower_bound_sequence_history > limit
    return int(np.argmax(above)) + 1 if above.any() else 0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitoring", description=__doc__)
    parser.add_argument("--limit", type=float, default=0.01, help="promised rate")
    parser.add_argument("--level", type=float, default=0.001, help="probability of a false alarm")
    parser.add_argument("--checks", type=int, default=1500, help="spot checks in a stream")
    parser.add_argument("--streams", type=int, default=40)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| true rate | bet: alarms | median check | MAPIE: alarms | median check |")
    print("| --- | --- | --- | --- | --- |")
    for rate in RATES:
        streams = (rng.random((options.streams, options.checks)) < rate).astype(float)
        cells = []
        for way in (bet, mapie):
            found = np.array([way(losses, options.limit, options.level) for losses in streams])
            alarms = found[found > 0]
            cells += [f"{len(alarms)} of {len(found)}", f"{np.median(alarms):.0f}" if len(alarms) else ""]
        print(f"| {100 * rate:g} % | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
