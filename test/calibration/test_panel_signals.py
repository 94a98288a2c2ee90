# SPDX-License-Identifier: Apache-2.0
"""Scores of a panel as signals of the calibrated risk."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.calibration import fitting
from sticker_uq.calibration.choosing import fit_risk
from sticker_uq.calibration.outcomes import CalledStickers, match_sticker, outcomes_of
from sticker_uq.calibration.records import Record
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import PanelRule, RiskScore
from sticker_uq.scene import MonitorScore, ObjectClass

NAME = "monitor.knn"


def with_panel(records: Sequence[Record]) -> list[Record]:
    """``records`` with one monitor, which mostly notices what is wrong."""
    found = []
    for number, record in enumerate(records):
        rng = np.random.default_rng([7, number])
        objects = tuple(
            replace(one, monitors=(MonitorScore("knn", float(rng.normal(_wrong(one, record), 0.2)), 2.0),))
            for one in record.assessment.objects
        )
        found.append(replace(record, assessment=replace(record.assessment, objects=objects, panel_hash="p")))
    return found


def _wrong(one: object, record: Record) -> float:
    return float(one.label is ObjectClass.STICKER and match_sticker(one, record) < 0)


@pytest.fixture(autouse=True)
def only_one_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which combination is best is tested elsewhere, and takes long."""

    def fitted(objects: CalledStickers, names: Sequence[str], level: float, _: object) -> RiskScore:
        return fit_risk({name: objects.signals[name] for name in names}, objects.badness)

    monkeypatch.setattr(fitting, "choose_risk", fitted)


@pytest.mark.parametrize("combination", ["risk", "any"])
def test_scores_enter_the_risk_where_they_are_to_be_combined(drawn, combination):
    records = with_panel(drawn(0, 120))
    assert NAME in outcomes_of(records, Policy()).detected.signals
    draft = fitting.fit_policy(records, Policy(panel=PanelRule(combination=combination)))
    terms = {term.signal: term.log_odds[-1] for term in draft.risk.terms}
    assert (NAME in terms) is (combination == "risk")
    if combination == "risk":
        assert terms[NAME] == max(terms.values())
    assert draft.panel == PanelRule(combination=combination)


def test_without_a_panel_nothing_of_it_is_fitted(drawn):
    draft = fitting.fit_policy(drawn(0, 60), Policy())
    assert not any(term.signal.startswith("monitor.") for term in draft.risk.terms)
