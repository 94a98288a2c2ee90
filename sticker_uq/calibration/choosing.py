# SPDX-License-Identifier: Apache-2.0
"""Which combination of signals a calibrated policy uses: cross-validation on the images that are fitted on, and on no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sticker_uq.calibration.combination import PENALTIES, fit_risk
from sticker_uq.calibration.outcomes import Objects
from sticker_uq.calibration.selective import curve
from sticker_uq.gate.policy.policy_schema import RiskScore, RiskTerm
from sticker_uq.gate.policy.signals import SignalName
from sticker_uq.scene import FloatArray, IntArray

FOLDS = 4
SPLITS = 3
"""Times that the images are divided into folds anew."""
LEAST_LAPTOPS, LEAST_WRONG = 100, 20
"""Laptops fitted on and wrong objects on them, below which many signals fit noise: the mean score alone is used."""
BACKUPS: tuple[SignalName, ...] = ("improbability", "single_pass_improbability", "shannon_entropy")
"""Signals that may be all there is to a risk score, when no combination comes up to one of them."""
MARGIN = 0.002
"""So much less coverage a combination may have: it notices more in circumstances that nobody calibrated."""


@dataclass(frozen=True)
class Candidate:
    """A way to make a policy's risk score: of which signals, and with which penalty on their weights."""

    signals: tuple[SignalName, ...]
    penalty: float

    def fit(self, signals: Mapping[SignalName, FloatArray], badness: FloatArray) -> RiskScore:
        """The policy's risk score on objects with ``signals`` (N,) each and ``badness`` (N,)."""
        return fit_risk({name: signals[name] for name in self.signals}, badness, self.penalty)


def choose_risk(
    objects: Objects,
    names: Sequence[SignalName],
    level: float,
    say: Callable[[str], None] = lambda _: None,
) -> RiskScore:
    """The policy's risk score that removes most stickers while ``level`` of the images go wrong, fitted to all ``objects``.

    Combinations of the signals ``names`` with several penalties, and the best single signals, are compared by cross-validation
    over images; half the level counts as much as the level, where fewer mistakes decide. A combination stays unless a single
    signal removes noticeably more in every split. With few laptops or few mistakes it is the mean score, as ``say`` tells.
    """
    laptops, wrong = len(np.unique(objects.image)), int((~objects.right).sum())
    if (laptops < LEAST_LAPTOPS or wrong < LEAST_WRONG) and len(names) > 1 and BACKUPS[0] in names:
        say(
            f"the risk score is the mean score alone: {laptops} laptops with {wrong} wrong objects to fit on, expected "
            f"{LEAST_LAPTOPS} with {LEAST_WRONG} or more for a combination of signals"
        )
        # rising everywhere, so that a limit on the risk is one on the mean score; what is fitted to few may be level in parts
        rising = RiskTerm(signal=BACKUPS[0], knots=(0.0, 1.0), log_odds=(0.0, 8.0))
        return RiskScore(intercept=-4.0, terms=(rising,), max_removal=1.0)
    combined = [Candidate(tuple(names), penalty) for penalty in PENALTIES]
    single = [Candidate((name,), PENALTIES[0]) for name in BACKUPS if name in names and len(names) > 1]
    images = np.unique(objects.image, return_inverse=True)[1]
    best = combined[0]
    if objects.right.any() and not objects.right.all() and images.max(initial=0) >= 2 * FOLDS:
        covered = {one: _coverage(one, objects, images, level) for one in (*combined, *single)}
        best = max(combined, key=lambda one: covered[one].mean())
        runner_up = max(single, key=lambda one: covered[one].mean(), default=best)
        if (covered[runner_up] > covered[best] + MARGIN).all():
            best = runner_up
    return best.fit(objects.signals, objects.badness)


def _coverage(candidate: Candidate, objects: Objects, images: IntArray, level: float) -> FloatArray:
    """Share of the stickers removed by scores that never saw the image, mean of ``level`` and half of it, of each split."""
    count = int(images.max()) + 1
    shares = []
    for split in range(SPLITS):
        fold = np.random.default_rng(split).integers(FOLDS, size=count)[images]
        doubt = np.zeros(len(objects))
        for number in range(FOLDS):
            own, others = fold == number, fold != number
            if not own.any() or not others.any():
                continue
            signals = {name: objects.signals[name] for name in candidate.signals}
            score = candidate.fit({n: v[others] for n, v in signals.items()}, objects.badness[others])
            doubt[own] = log_odds(score, {n: v[own] for n, v in signals.items()})
        renumbered = Objects(images, objects.right, objects.badness, objects.truth, {})
        line = curve(renumbered, doubt, count, len(np.unique(objects.truth[objects.right])))
        shares.append((line.removed_at(level) + line.removed_at(level / 2)) / 2)
    return np.array(shares)


def log_odds(score: RiskScore, signals: Mapping[SignalName, FloatArray]) -> FloatArray:
    """The log odds of a policy's risk ``score`` for objects with ``signals`` (N,) each, (N,)."""
    added = [np.interp(signals[term.signal], term.knots, term.log_odds) for term in score.terms]
    return np.asarray(score.intercept + np.sum(added, axis=0), float)
