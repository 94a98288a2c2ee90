# SPDX-License-Identifier: Apache-2.0
"""The comparison of the second opinion: what is released at equal wrongful laptops, and by heads that saw none of the laptop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import photo_signal
from benchmarks.photo_signal import FOLDS, Called, cross_fitted, released
from sticker_uq_lab.training.photo_head import PhotoExamples


def called(laptops: list[int], wrong: list[bool]) -> Called:
    sticker = np.array([-1 if bad else number for number, bad in enumerate(wrong)])
    count = max(laptops) + 1
    features = {"photo": np.array(laptops, float)[:, None]}
    return Called(np.array(laptops), sticker, {}, features, count, len(wrong), tuple(map(str, range(count))))


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 20)), min_size=1, max_size=40))
def test_what_is_released_is_the_most_that_any_limit_allows(rows):
    laptops, wrong, doubt = map(list, zip(*rows, strict=True))
    seen, doubts = called(laptops, wrong), np.array(doubt, float)
    bad = seen.sticker < 0
    for allowed in (0, 1, 2):
        best = 0
        for limit in (-1.0, *np.unique(doubts)):
            within = doubts <= limit
            if len(set(seen.laptop[within & bad].tolist())) <= allowed:
                best = max(best, int((within & ~bad).sum()))
        assert released(seen, doubts, allowed) == best


def test_no_head_judges_a_laptop_that_it_learned_from(monkeypatch):
    laptops = [number for number in range(20) for _ in range(3)]
    seen = called(laptops, [False] * 60)
    names = [str(number) for number in reversed(range(20))]
    theirs = np.repeat(np.arange(20), 2)
    examples = PhotoExamples(theirs[:, None].astype(np.float32), np.zeros(40, np.int64), theirs)
    judged = []

    def fitted(part: PhotoExamples, _net: object) -> set[str]:
        return {names[laptop] for laptop in part.laptops}

    def probabilities(learned: set[str], features: np.ndarray) -> np.ndarray:
        own = {str(int(one)) for one in features[:, 0]}
        assert not learned & own
        assert len(learned) >= 20 * (FOLDS - 1) // FOLDS - 1
        judged.extend(own)
        return np.zeros(len(features))

    monkeypatch.setattr(photo_signal, "fit_photo_head", fitted)
    monkeypatch.setattr(photo_signal, "probabilities", probabilities)
    found = cross_fitted(seen, examples, names, object(), "photo")
    assert np.isfinite(found).all()
    assert sorted(judged) == sorted(names)
