# SPDX-License-Identifier: Apache-2.0
"""Which signals a risk score is made of is decided by images that it was not fitted on."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from sticker_uq.calibration.choosing import PENALTIES, choose_risk, fit_left, fit_risk, log_odds
from sticker_uq.calibration.outcomes import CalledStickers
from sticker_uq.gate.policy.signals import SIGNALS


def objects(rng: np.random.Generator, count: int, useful: bool) -> CalledStickers:
    """Objects of ``count`` images, three each, that are wrong where their improbability says so, and a second signal as well if

    it is ``useful``; otherwise that one lies, where there is little to learn from.
    """
    image = np.repeat(np.arange(count), 3)
    wrong = rng.random(len(image)) < 0.06
    improbability = np.clip(np.where(wrong, 0.3, 0.1) + rng.normal(0, 0.06, len(image)), 0, 1)
    told = wrong if useful else rng.random(len(image)) < 0.06
    crowding = np.clip(np.where(told, 0.7, 0.1) + rng.normal(0, 0.1, len(image)), 0, 1)
    truth = np.where(wrong, -1, np.arange(len(image)))
    signals = {"improbability": improbability, "crowding": crowding}
    return CalledStickers(image, ~wrong, wrong.astype(float), truth, signals)


def test_signals_that_help_are_combined():
    risk = choose_risk(objects(np.random.default_rng(0), 600, True), ("improbability", "crowding"), 0.02)
    assert {term.signal for term in risk.terms} == {"improbability", "crowding"}


def test_the_same_objects_give_the_same_score_whatever_the_images_are_called():
    known = objects(np.random.default_rng(0), 200, True)
    renamed = CalledStickers(known.image * 7 + 3, known.right, known.badness, known.truth, known.signals)
    names = ("improbability", "crowding")
    assert choose_risk(known, names, 0.02) == choose_risk(renamed, names, 0.02)


def test_the_score_does_not_depend_on_how_many_threads_there_are():
    rng = np.random.default_rng(0)
    signals = {name: rng.random(10_000) ** 3 for name in list(SIGNALS)[:10]}
    badness = (rng.random(10_000) < 1 / (1 + np.exp(4 - sum(signals.values())))).astype(float)
    scores = []
    for threads in (1, 4):
        with threadpool_limits(threads, "blas"):
            scores.append(fit_risk(signals, badness, PENALTIES[2]))
    assert scores[0] == scores[1]


def test_never_worse_than_the_score_alone_on_images_that_took_no_part():
    rng, losses = np.random.default_rng(1), []
    for _ in range(5):
        risk = choose_risk(objects(rng, 150, False), ("improbability", "crowding"), 0.02)
        fresh = objects(rng, 2000, False)
        doubt = log_odds(risk, fresh.signals)
        auroc = [
            np.mean(score[~fresh.right][:, None] > score[fresh.right][None])
            for score in (doubt, fresh.signals["improbability"])
        ]
        losses.append(auroc[1] - auroc[0])
    assert np.mean(losses) < 0.01


def test_with_too_few_images_there_is_still_a_score():
    few = objects(np.random.default_rng(0), 3, True)
    assert choose_risk(few, ("improbability", "crowding"), 0.02).terms is not None
    assert choose_risk(few, ("improbability",), 0.02).max_removal == pytest.approx(1.0)


def test_what_is_left_is_told_by_the_signals_that_say_so_on_laptops_that_took_no_part():
    rng = np.random.default_rng(0)

    def laptops(count):
        dirty = rng.random(count) < 0.1
        missed = np.clip(np.where(dirty, 0.5, 0.2) + rng.normal(0, 0.15, count), 0, 1)
        any_sticker = np.clip(np.where(dirty, 0.4, 0.2) + rng.normal(0, 0.15, count), 0, 1)
        signals = {
            "missed_sticker_probability": missed,
            "any_sticker": any_sticker,
            "in_passes": rng.random(count),
        }
        return signals, dirty

    score = fit_left(*laptops(800))
    signals, dirty = laptops(2000)

    def area(values):
        return np.mean(values[dirty][:, None] > values[~dirty][None])

    said = np.array([score({name: values[n] for name, values in signals.items()}) for n in range(2000)])
    assert area(said) > max(area(values) for values in signals.values())
    assert said.mean() == pytest.approx(0.1, abs=0.03)
