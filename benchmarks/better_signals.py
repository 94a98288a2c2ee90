# SPDX-License-Identifier: Apache-2.0
"""Doubts about an object, of many families, from what benchmarks.better_measure keeps; what learns, learns on the split "fit".

Every doubt is one number per object that grows with it; NaN, an object that nothing is known about, counts as infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp, softmax

from benchmarks.better_measure import (
    NEIGHBOURS,
    PACKAGED,
    PASS_SIGNALS,
    VIEWED,
    Instrument,
    Passes,
    Picture,
    log_odds,
)
from benchmarks.hard_measure import HEAD_SIGNALS
from benchmarks.hard_methods import STICKER
from benchmarks.hard_scenes import NONE, Material
from sticker_uq.calibration.combination import fit_risk
from sticker_uq.detection import StochasticDetector
from sticker_uq.monitors.gaussian import factor, squared_norm, whiten
from sticker_uq.monitors.objects import Objects
from sticker_uq.monitors.registry import monitor_named
from sticker_uq.scene import MONITOR_SIGNAL, FloatArray, IntArray, InvalidInput
from sticker_uq.uncertainty.metrics import entropy

REFERENCE = "1 - score, one pass"
ONE_PASS = (*HEAD_SIGNALS, *NEIGHBOURS)
PAPER = {
    "variation_ratio": "variation ratio",
    "shannon_entropy": "Shannon entropy",
    "mutual_information": "mutual information",
    "relative_total_variance": "total variance / area",
    "relative_predictive_surface": "predictive surface / area",
}
"""The five metrics of Lu et al., by name."""
_NAMES = PAPER | {
    "score": "1 - mean score",
    "missed": "missed passes",
    "score_all": "1 - mean score, all passes",
    "vr_all": "variation ratio, all passes",
    "mi_all": "mutual information, all passes",
    "anchor_mi": "mutual information, own anchor",
    "anchor_sd": "spread of the log odds, own anchor",
    "anchor_mean": "mean log odds, own anchor",
    "anchor_spread": "spread of the box, own anchor",
}
DENSITIES = {"pooled": "pooled maps", "last": "last layer's input"}
"""Features whose density is estimated, and what tables call them."""
TEMPERATURES = (2.0, 4.0)
PRIORS = (1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
"""Precisions of the weights before any picture that the last layer's posterior is tried with."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)


@dataclass(frozen=True)
class Table:
    """The N objects that one pass calls a sticker, or all it detects, of many pictures.

    ``rows``: a row each with "case", "strength", "part", "seed", "label" of what is there, "wrong" and the signals; ``passes``:
    (N, PASS_SIGNALS) per kind of passes; ``arrays``: "boxes", "probabilities", "logits", "last", "pooled", "draws" (N, T, 3).
    """

    rows: pd.DataFrame
    passes: dict[str, FloatArray]
    arrays: dict[str, np.ndarray]

    def __getitem__(self, chosen: np.ndarray) -> Table:
        return Table(
            self.rows[chosen].reset_index(drop=True),
            {name: values[chosen] for name, values in self.passes.items()},
            {name: values[chosen] for name, values in self.arrays.items()},
        )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def stickers(self) -> Table:
        """What the pass calls a sticker: what may be released."""
        return self[self.arrays["probabilities"].argmax(axis=1) == STICKER]


def table_of(pictures: Sequence[Picture], found: Sequence[dict[str, np.ndarray]]) -> Table:
    """All objects of ``pictures`` in which ``found`` was measured, without those that nobody can judge."""
    rows, arrays = [], []
    kinds = [name.removeprefix("seen ") for name in found[0] if name.startswith("seen ")]
    for picture, own in zip(pictures, found, strict=True):
        kept = ~own["hidden"]
        count = int(kept.sum())
        row = {
            "part": picture.case.part,
            "case": picture.case.name,
            "strength": picture.case.strength,
            "seed": picture.seed,
            "label": own["right_class"][kept],
            "level": own["level"][kept],
            "crowding": _crowding(own["boxes"])[kept],
        }
        row |= {name: own[name][kept] for name in (*ONE_PASS, "novelty")}
        rows.append(pd.DataFrame(row, index=range(count)))
        draws = own["passes"].swapaxes(0, 1)
        stored = {name: own[name] for name in ("boxes", "probabilities", "logits", "last", "pooled")}
        arrays.append({name: values[kept] for name, values in (stored | {"draws": draws}).items()})
    joined = pd.concat(rows, ignore_index=True)
    joined["wrong"] = joined.label != STICKER
    return Table(
        joined,
        {kind: np.concatenate([own[kind][~own["hidden"]] for own in found]) for kind in kinds},
        {name: np.concatenate([own[name] for own in arrays]) for name in arrays[0]},
    )


def _crowding(boxes: FloatArray) -> FloatArray:
    """The largest share of the smaller box that each of ``boxes`` (N, 4) has in common with another, (N,)."""
    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    sides = np.clip(np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - low, 0, None)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    shared = np.prod(sides, axis=2) / np.maximum(np.minimum(area[:, None], area[None]), 1e-9)
    np.fill_diagonal(shared, 0.0)
    return shared.max(axis=1, initial=0.0)


def plain_doubts(table: Table) -> dict[str, FloatArray]:
    """Doubts that learn nothing, by name."""
    vectors = table.arrays["probabilities"].astype(float)
    found = {
        REFERENCE: -log_odds(vectors),
        "entropy, one pass": entropy(softmax(table.arrays["logits"], axis=1)),
    }
    found |= {f"{name.replace('_', ' ')}, one pass": table.rows[name].to_numpy(float) for name in ONE_PASS}
    found["crowding, one pass"] = table.rows["crowding"].to_numpy(float)
    found["novelty of the object"] = table.rows["novelty"].to_numpy(float)
    for kind, values in table.passes.items():
        for number, name in enumerate(PASS_SIGNALS):
            own = values[:, number]
            if np.isfinite(own).any():
                found[of_passes(name, kind)] = -own if name == "anchor_mean" else own
    return found


def of_passes(signal: str, kind: str | Passes) -> str:
    """The name of one of PASS_SIGNALS by one kind of passes."""
    return f"{_NAMES[signal]} ({kind.name if isinstance(kind, Passes) else kind})"


PAPER_DOUBTS = tuple(of_passes(name, PACKAGED) for name in PAPER)
"""The five metrics as the cell computes them."""


def tempered(logits: FloatArray, temperature: float) -> dict[str, FloatArray]:
    """Entropy and mutual information (N,) of class vectors with ``logits`` (N, T, 3) / ``temperature`` over T passes."""
    vectors = softmax(logits.astype(float) / temperature, axis=2)
    mean = vectors.mean(axis=1)
    return {"entropy": entropy(mean), "mutual information": entropy(mean) - entropy(vectors).mean(axis=1)}


def best_temperature(logits: FloatArray, labels: IntArray) -> float:
    """The temperature that makes the ``labels`` (N,) likeliest by ``logits`` (N, 3) (Guo et al. 2017, section 4.2)."""

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        return float((logsumexp(scaled, axis=1) - scaled[np.arange(len(labels)), labels]).mean())

    return float(np.exp(minimize_scalar(loss, bounds=np.log([0.05, 20.0]), method="bounded").x))


class LastLayer:
    """A Laplace approximation of the class head's last layer (Daxberger et al. 2021), of each of its outputs by itself.

    The Hessian of the cross-entropy of all anchors of the unchanged pictures of the split "fit", with its exact block for every
    output of the layer; blocks between outputs count as zero.
    """

    def __init__(self, instrument: Instrument, pictures: Sequence[Picture], material: Material) -> None:
        self._hessians: dict[int, FloatArray] = {}
        for picture in pictures:
            if picture.case.strength == "none":
                scene = picture.case.scene(picture.seed, material)
                for level, (inputs, vectors) in enumerate(level_inputs(instrument.detector, scene.image)):
                    self._add(level, inputs, vectors)

    def _add(self, level: int, inputs: FloatArray, vectors: FloatArray) -> None:
        """``inputs`` (P, C) of the cells of a level, ``vectors`` (P, A, 3) of their anchors."""
        padded = np.column_stack([inputs, np.ones(len(inputs))]).astype(np.float32)
        weights = (vectors * (1 - vectors)).reshape(len(inputs), -1).astype(np.float32)
        own = np.stack([(padded * column[:, None]).T @ padded for column in weights.T])
        self._hessians[level] = self._hessians[level] + own if level in self._hessians else own

    def variances(self, table: Table, prior: float) -> FloatArray:
        """Variance of each object's three logits, (N, 3), where the weights had the precision ``prior`` before any picture."""
        found = np.full((len(table), 3), np.nan)
        levels, places = np.divmod(table.rows["level"].to_numpy(np.int64), 100)
        for level, place in sorted(set(zip(levels.tolist(), places.tolist(), strict=True))):
            own = (levels == level) & (places == place)
            hessians = self._hessians[level]
            channels = hessians.shape[1] - 1
            inputs = np.column_stack([table.arrays["last"][own, :channels].astype(float), np.ones(own.sum())])
            for output in range(3):
                block = hessians[3 * place + output].astype(float) + prior * np.eye(channels + 1)
                solved = cho_solve(cho_factor(block), inputs.T)
                found[own, output] = (inputs.T * solved).sum(axis=0)
        return found

    def best_prior(self, table: Table) -> float:
        """The one of PRIORS by which the classes of ``table`` are likeliest."""
        right = ~table.rows.wrong.to_numpy()

        def loss(prior: float) -> float:
            mean, deviation = margin(table.arrays["logits"], self.variances(table, prior))
            p = np.clip(expit(mean / np.sqrt(1 + np.pi * deviation**2 / 8)), 1e-6, 1 - 1e-6)
            return float(-np.log(np.where(right, p, 1 - p)).mean())

        return min(PRIORS, key=loss)


def level_inputs(detector: StochasticDetector, image: np.ndarray) -> list[tuple[FloatArray, FloatArray]]:
    """Of every level of an SSDLite, what the class head's last layer gets in each of P cells of ``image`` (P, C), and the class
    vectors of the cell's anchors (P, A, 3).
    """
    maps = detector.head_maps(detector.encode(image))
    found = []
    with torch.no_grad():
        for block, plain in zip(detector.model.head.classification_head.module_list, maps, strict=True):
            hidden = block[0](plain)
            logits = block[1](hidden)[0].flatten(1).T.reshape(hidden.shape[2] * hidden.shape[3], -1, 3)
            found.append((hidden[0].flatten(1).T.numpy(), logits.softmax(dim=2).numpy()))
    return found


def margin(logits: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the log odds of sticker, (N,) each, of independent ``logits`` (N, 3) with ``variances``."""
    others = np.delete(logits.astype(float), STICKER, axis=1)
    share = softmax(others, axis=1)
    variance = variances[:, STICKER] + (share**2 * np.delete(variances, STICKER, axis=1)).sum(axis=1)
    return logits[:, STICKER] - logsumexp(others, axis=1), np.sqrt(variance)


def laplace_doubts(table: Table, layer: LastLayer, prior: float) -> dict[str, FloatArray]:
    """By the posterior of the last layer: 1 - the probit mean, the mutual information, and the deviation of the log odds."""
    mean, deviation = margin(table.arrays["logits"], layer.variances(table, prior))
    drawn = expit(mean[:, None] + deviation[:, None] * _NODES)
    weights = _WEIGHTS / _WEIGHTS.sum()
    expected = drawn @ weights
    each = entropy(np.stack([drawn, 1 - drawn], axis=2))
    return {
        "1 - score, last-layer Laplace": -mean / np.sqrt(1 + np.pi * deviation**2 / 8),
        "mutual information, last-layer Laplace": entropy(np.stack([expected, 1 - expected], axis=1))
        - each @ weights,
        "spread of the log odds, last-layer Laplace": deviation,
    }


def density_doubts(fit: Table, table: Table) -> dict[str, FloatArray]:
    """By features of the objects ``fit`` of the split "fit": its pooled maps, and what the class head's last layer gets."""
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    found: dict[str, FloatArray] = {}
    stickers = (fit.rows.label == STICKER).to_numpy()
    for words, name in DENSITIES.items():
        known, new = (one.arrays[words].astype(float) for one in (fit, table))
        mean = known[stickers].mean(axis=0)
        classes = fit.rows.label.to_numpy()
        labels, place = np.unique(classes, return_inverse=True)
        lower = factor(known - np.stack([known[classes == label].mean(axis=0) for label in labels])[place])
        found[f"Mahalanobis distance to stickers, {name}"] = squared_norm(whiten(new - mean, lower))
        relative, nearest = monitor_named("relative_mahalanobis"), monitor_named("knn")
        relative.fit(Objects(fit.arrays["probabilities"].astype(float), features=known, labels=classes))
        found[f"relative Mahalanobis distance, {name}"] = relative.score(
            Objects(table.arrays["probabilities"].astype(float), features=new)
        )
        nearest.fit(Objects(fit.arrays["probabilities"][stickers].astype(float), features=known[stickers]))
        found[f"10th nearest sticker, {name}"] = nearest.score(
            Objects(table.arrays["probabilities"].astype(float), features=new)
        )
        few = PCA(min(32, int(stickers.sum())), whiten=True, random_state=0).fit(known[stickers])
        mixture = GaussianMixture(
            min(4, int(stickers.sum())), covariance_type="full", reg_covar=1e-3, random_state=0
        )
        mixture.fit(few.transform(known[stickers]))
        found[f"Gaussian mixture of stickers, {name}"] = -mixture.score_samples(few.transform(new))
    return found


def _other_half(fit: Table) -> dict[str, FloatArray]:
    """`density_doubts` about the objects of ``fit`` called stickers, by the features of the other half of the laptops."""
    half = fit.rows.seed.to_numpy() % 2 == 0
    called = fit.arrays["probabilities"].argmax(axis=1) == STICKER
    found: dict[str, FloatArray] = {}
    for own in (half, ~half):
        for name, values in density_doubts(fit[~own], fit[own & called]).items():
            found.setdefault(name, np.full(len(fit), np.nan))[own & called] = values
    return {name: values[called] for name, values in found.items()}


def learned_doubts(
    fit: Mapping[str, FloatArray], wrong: np.ndarray, new: Mapping[str, FloatArray]
) -> dict[str, FloatArray]:
    """Doubts fitted to whether an object of the split "fit" is ``wrong`` (N,), from its other doubts ``fit``, for ``new``."""
    found: dict[str, FloatArray] = {}
    if wrong.all() or not wrong.any():
        raise InvalidInput(
            f"all {len(wrong)} objects to fit on are alike, expected right and wrong ones: fit on more laptops"
        )
    for words, names in learned_from(fit).items():
        known, shown = (np.stack([one[n] for n in names], axis=1) for one in (fit, new))
        highest = np.nanmax(np.where(np.isfinite(known), known, np.nan), axis=0)
        known, shown = (np.where(np.isfinite(one), one, highest) for one in (known, shown))
        for kind, make in LEARNERS.items():
            found[f"{kind} on {words}"] = make(known, wrong, shown)
    return found


def learned_from(doubts: Mapping[str, FloatArray]) -> dict[str, tuple[str, ...]]:
    """The sets of doubts that are combined, by their name."""
    one = (
        REFERENCE,
        *(n for n in doubts if n.endswith(", one pass") and n not in (REFERENCE, "max logit, one pass")),
    )
    packaged = tuple(of_passes(name, PACKAGED) for name in ("score", *PAPER, "missed"))
    views = tuple(of_passes(name, VIEWED) for name in ("score_all", "mi_all", "relative_total_variance"))
    near = tuple(
        f"{words}, pooled maps" for words in ("10th nearest sticker", "relative Mahalanobis distance")
    )
    chosen = {
        "score and novelty": (REFERENCE, "novelty of the object"),
        "mean score and novelty": (of_passes("score", PACKAGED), "novelty of the object"),
        "one pass": one,
        "score and the five metrics": (REFERENCE, *packaged),
        "one pass and novelty": (*one, "novelty of the object"),
        "one pass, novelty and the five metrics": (*one, "novelty of the object", *packaged),
        "score, novelty and views": (REFERENCE, "novelty of the object", *views),
        "score, novelty and nearest stickers": (REFERENCE, "novelty of the object", *near),
        "score and views": (REFERENCE, *views),
        "score, novelty, views and nearest stickers": (REFERENCE, "novelty of the object", *views, *near),
        "everything": (*one, "novelty of the object", *packaged, *views, *near),
    }
    return {words: names for words, names in chosen.items() if all(name in doubts for name in names)}


def _logistic(known: FloatArray, wrong: np.ndarray, new: FloatArray) -> FloatArray:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import QuantileTransformer

    quantiles = QuantileTransformer(
        n_quantiles=min(100, len(known)), output_distribution="normal", random_state=0
    )
    made: Any = make_pipeline(quantiles, LogisticRegression(C=0.1, max_iter=1000, class_weight="balanced"))
    return np.asarray(made.fit(known, wrong).decision_function(new))


def _boosted(known: FloatArray, wrong: np.ndarray, new: FloatArray) -> FloatArray:
    from sklearn.ensemble import HistGradientBoostingClassifier

    made = HistGradientBoostingClassifier(
        max_iter=60,
        learning_rate=0.1,
        max_leaf_nodes=8,
        min_samples_leaf=15,
        l2_regularization=1.0,
        class_weight="balanced",
        random_state=0,
    )
    return np.asarray(made.fit(known, wrong).decision_function(new))


def _additive(known: FloatArray, wrong: np.ndarray, new: FloatArray) -> FloatArray:
    """The risk score that `sticker-uq calibrate` fits: each doubt adds a non-decreasing part."""
    names = [f"{MONITOR_SIGNAL}s{number}" for number in range(known.shape[1])]
    risk = fit_risk(dict(zip(names, known.T, strict=True)), wrong.astype(float))
    return np.array([risk(dict(zip(names, row, strict=True))) for row in new.tolist()])


LEARNERS: dict[str, Callable[[FloatArray, np.ndarray, FloatArray], FloatArray]] = {
    "logistic regression": _logistic,
    "gradient boosting": _boosted,
    "calibrate's risk score": _additive,
}
"""What combines doubts: each takes those known (N, D), whether each is wrong (N,), and new ones (M, D), and gives (M,)."""


def doubts_of(fit: Table, table: Table, layer: LastLayer) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Every doubt about the objects of ``table`` that one pass calls a sticker, and what was chosen on ``fit``, by name."""
    known, shown = fit.stickers, table.stickers
    temperature = best_temperature(fit.arrays["logits"].astype(float), fit.rows.label.to_numpy())
    prior = layer.best_prior(known)
    chosen = {
        "temperature": temperature,
        "prior": prior,
        "fitted": len(known),
        "fitted_wrong": int(known.rows.wrong.sum()),
    }
    by_table = []
    for one in (known, shown):
        found = plain_doubts(one)
        for value in (temperature, *TEMPERATURES):
            words = "fitted" if value == temperature else f"{value:g}"
            own = tempered(one.arrays["logits"][:, None], value)["entropy"]
            found[f"entropy at temperature {words}, a single pass"] = own
            for name, values in tempered(one.arrays["draws"], value).items():
                found[f"{name} at temperature {words}, own anchor"] = values
        by_table.append(found | laplace_doubts(one, layer, prior))
    by_table[0] |= _other_half(fit)
    by_table[1] |= density_doubts(fit, shown)
    wrong, unchanged = known.rows.wrong.to_numpy(), (known.rows.strength == NONE).to_numpy()
    learned = learned_doubts(by_table[0], wrong, by_table[1])
    few = {name: values[unchanged] for name, values in by_table[0].items()}
    if wrong[unchanged].any():
        only = learned_doubts(few, wrong[unchanged], by_table[1])
        learned |= {f"{name}, fitted on unchanged laptops": values for name, values in only.items()}
    return by_table[1] | learned, chosen
