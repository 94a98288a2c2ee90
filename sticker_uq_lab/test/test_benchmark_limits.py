# SPDX-License-Identifier: Apache-2.0
"""What a limit adds is compared at as many wrongful removals; a permit is revoked as the gate revokes it."""

import numpy as np
import pytest

from benchmarks.limits import at_as_many
from benchmarks.permit_doubts import RULES, K, agreed, revoked
from sticker_uq.calibration.fitting import FitSettings, Levels, fit_policy
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.proving import Trials
from sticker_uq.gate import Policy, judge
from sticker_uq.testing.scenes import THERE, assessment, object_at
from test.calibration.conftest import draw

POLICY = Policy(min_probability=0.9, max_dil=1.0, max_dil_clean=1.0)


def test_a_policy_is_compared_where_as_many_laptops_go_wrong():
    fit, proof = ([draw(seed) for seed in range(first, first + 200)] for first in (0, 1000))
    policy = Trials(fit_policy(fit, Policy(), FitSettings(level=0.05)), fit, proof).policy(
        Levels(0.05, 0.2, 0.1)
    )
    found = measure(proof, policy)
    asked = at_as_many(policy, proof, found.wrongful.events)[0]
    assert asked.mean() <= 100 * found.asked.rate, "the loosest limit with as many wrongful removals"
    means = [at_as_many(policy, proof, wrongful)[0].mean() for wrongful in (0, 5, 11)]
    assert means == sorted(means, reverse=True)
    assert means[0] > means[-1]
    blind = at_as_many(fit_policy(fit, Policy(), FitSettings(level=0.05, signals=["dil"])), proof, 5)[0]
    assert blind.mean() > means[1] + 5, "a signal that says nothing asks more"


@pytest.mark.parametrize(
    ("later", "at_once", "in_a_row"),
    [
        ((0.96,) * 3, False, False),
        ((0.96, 0.85, 0.96), True, False),
        ((0.85,) * K, True, True),
    ],
)
def test_a_slight_doubt_revokes_at_once_or_in_a_row(later, at_once, in_a_row):
    def scene(probability):
        rest = (1 - probability) / 2
        return judge(assessment(object_at(THERE, probabilities=(rest, rest, probability))), POLICY)

    decisions = [*[scene(0.96)] * K, *map(scene, later)]
    (chosen,) = agreed(decisions[:K])
    assert np.array_equal(chosen.object.box, THERE)
    assert agreed([*decisions[: K - 1], scene(0.85)]) == [], "it may not be removed in one of them"
    assert [revoked(chosen, decisions, needed) for needed in RULES.values()] == [at_once, in_a_row]
