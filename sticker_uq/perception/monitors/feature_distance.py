# SPDX-License-Identifier: Apache-2.0
"""Monitors by distance of activations: surprise adequacy, and later ones, relative Mahalanobis and nearest neighbours.

Surprise: how unlike its class's training activations an activation is (Kim, Feldt and Yoo 2019: LSA, DSA; Kim et al. 2020: MDSA),
as run by Weiss et al. 2022. Classes are the *predicted* ones, of the training objects too. An object whose predicted class too
few training objects had is infinitely surprising.

Own code: pytorch-ood has both, but keeps what was fitted in objects that only pickle can store, and inverts
covariances of few objects without shrinkage.
"""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from sticker_uq.perception.monitors.interface import Arrays, Monitor, Objects
from sticker_uq.scene import FloatArray

_JITTER = 1e-9  # relative to the mean variance: activations that never vary leave the covariance singular
_CHUNK = 512  # objects whose distances are held at once


def factor(centred: FloatArray) -> FloatArray:
    """Lower Cholesky factor (F, F) of the Ledoit-Wolf covariance of vectors (N, F) whose mean was taken off."""
    from sklearn.covariance import ledoit_wolf  # takes a second to load; only a monitor that learns needs it

    covariance, _ = ledoit_wolf(centred, assume_centered=True)
    level = float(np.trace(covariance)) / len(covariance)
    return np.linalg.cholesky(covariance + (_JITTER * level + 1e-300**0.5) * np.eye(len(covariance)))


def whiten(vectors: FloatArray, lower: FloatArray) -> FloatArray:
    """Vectors (N, F) in coordinates in which ``lower @ lower.T`` is the identity, (N, F); NaN where they are."""
    return np.asarray(solve_triangular(lower, vectors.T, lower=True, check_finite=False)).T


def squared_norm(vectors: FloatArray) -> FloatArray:
    """Squared Euclidean norms (N,) of vectors (N, F)."""
    return np.einsum("nf,nf->n", vectors, vectors)


class RelativeMahalanobis(Monitor):
    """Smallest squared Mahalanobis distance to a class minus that to all objects (Ren et al. 2021).

    The classes share one covariance; classes are the labels where ``fit`` gets them, else the predicted ones.
    """

    name = "relative_mahalanobis"
    needs = ("probabilities", "features")

    def _fit(self, objects: Objects) -> Arrays:
        vectors = np.asarray(objects.features, np.float64)
        classes = objects.predicted if objects.labels is None else objects.labels
        labels, place = np.unique(classes, return_inverse=True)
        means = np.stack([vectors[classes == label].mean(axis=0) for label in labels])
        everything = vectors.mean(axis=0)
        return {
            "means": means,
            "lower": factor(vectors - means[place]),
            "all_mean": everything,
            "all_lower": factor(vectors - everything),
        }

    def _score(self, objects: Objects) -> FloatArray:
        vectors, known = np.asarray(objects.features, np.float64), self._learned
        lower = known["lower"]
        # one way through a large matrix, not two
        white = whiten(np.concatenate([vectors, known["means"]]), lower)
        squared = cdist(white[: len(vectors)], white[len(vectors) :], "sqeuclidean")
        background = squared_norm(whiten(vectors - known["all_mean"], known["all_lower"]))
        return squared.min(axis=1) - background


class NearestNeighbours(Monitor):
    """Distance to the k-th nearest training activation, all scaled to length 1 (Sun et al. 2022).

    ``k`` is lowered to the number of training objects where there are fewer.
    """

    name = "knn"
    needs = ("features",)

    def __init__(self, k: int = 10) -> None:
        super().__init__(k=k)

    def _fit(self, objects: Objects) -> Arrays:
        return {"known": _unit(objects.features)}

    def _score(self, objects: Objects) -> FloatArray:
        vectors, known = _unit(objects.features), self._learned["known"]
        place = min(self._options["k"], len(known)) - 1
        parts = [
            np.partition(cdist(vectors[start : start + _CHUNK], known), place, axis=1)[:, place]
            for start in range(0, len(vectors), _CHUNK)
        ]
        return np.concatenate(parts)


def _unit(vectors: FloatArray | None) -> FloatArray:
    values = np.asarray(vectors, np.float64)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


class LikelihoodSurprise(Monitor):
    """LSA: minus the logarithm of a Gaussian kernel density at the activation, in nats.

    Bandwidth by Scott's rule on the class's covariance, which is shrunk (Ledoit and Wolf) so that it can be inverted;
    ``most``: only so many activations, those that vary most, are read (300 in the published code).
    """

    name = "lsa"
    needs = ("probabilities", "features")

    def __init__(self, most: int = 300) -> None:
        super().__init__(most=most)

    def _fit(self, objects: Objects) -> Arrays:
        vectors = np.asarray(objects.features, np.float64)
        order = np.argsort(-vectors.var(axis=0), kind="stable")
        chosen = np.sort(order[: self._options["most"]])
        learned: Arrays = {"chosen": chosen}
        for label in np.unique(objects.predicted):
            own = vectors[objects.predicted == label][:, chosen]
            if len(own) < 2:
                continue
            lower = factor(own - own.mean(axis=0)) * len(own) ** (-1 / (own.shape[1] + 4))
            learned |= {f"known.{label}": whiten(own, lower), f"lower.{label}": lower}
        return learned

    def _score(self, objects: Objects) -> FloatArray:
        vectors = np.asarray(objects.features, np.float64)[:, self._learned["chosen"]]
        scores = np.full(len(objects), np.inf)
        for label in np.unique(objects.predicted):
            if f"known.{label}" not in self._learned:
                continue
            known, lower = self._learned[f"known.{label}"], self._learned[f"lower.{label}"]
            (rows,) = np.nonzero(objects.predicted == label)
            constant = np.log(len(known)) + np.log(np.diag(lower)).sum() + len(lower) / 2 * np.log(2 * np.pi)
            for start in range(0, len(rows), _CHUNK):
                part = rows[start : start + _CHUNK]
                squared = cdist(whiten(vectors[part], lower), known, "sqeuclidean")
                scores[part] = constant - logsumexp(-squared / 2, axis=1)
        return scores


class DistanceSurprise(Monitor):
    """DSA: d_a / d_b, d_a from the activation to the nearest training activation of its predicted class, d_b from that one to
    the nearest of another class.

    ``share``: part of the training objects of each class that is kept (0.3 in the paper, to save time), drawn with ``seed``.
    """

    name = "dsa"
    needs = ("probabilities", "features")

    def __init__(self, share: float = 0.3, seed: int = 0) -> None:
        super().__init__(share=share, seed=seed)

    def _fit(self, objects: Objects) -> Arrays:
        rng = np.random.default_rng(self._options["seed"])
        kept = []
        for label in np.unique(objects.predicted):  # of every class, however rare
            (rows,) = np.nonzero(objects.predicted == label)
            kept.append(rng.permutation(rows)[: max(1, round(self._options["share"] * len(rows)))])
        chosen = np.sort(np.concatenate(kept))
        vectors = np.asarray(objects.features, np.float64)[chosen]
        return {"known": vectors, "classes": objects.predicted[chosen].astype(np.int64)}

    def _score(self, objects: Objects) -> FloatArray:
        known, classes = self._learned["known"], self._learned["classes"]
        vectors = np.asarray(objects.features, np.float64)
        scores = np.full(len(objects), np.inf)
        for label in np.unique(classes):
            own, others = known[classes == label], known[classes != label]
            (rows,) = np.nonzero(objects.predicted == label)
            if not len(others):
                continue
            for start in range(0, len(rows), _CHUNK):
                part = rows[start : start + _CHUNK]
                distances = cdist(vectors[part], own)
                nearest = distances.argmin(axis=1)
                across = cdist(own[nearest], others).min(axis=1)
                d_a = distances[np.arange(len(part)), nearest]
                # two classes in one point: nothing there can be told apart
                scores[part] = np.divide(d_a, across, out=np.full(len(part), np.inf), where=across > 0)
        return scores


class MahalanobisSurprise(Monitor):
    """MDSA: squared Mahalanobis distance to the activations of the predicted class, covariance shrunk (Ledoit and Wolf)."""

    name = "mdsa"
    needs = ("probabilities", "features")

    def _fit(self, objects: Objects) -> Arrays:
        vectors = np.asarray(objects.features, np.float64)
        learned: Arrays = {"classes": np.unique(objects.predicted)}
        for label in learned["classes"]:
            own = vectors[objects.predicted == label]
            if len(own) < 2:
                continue
            mean = own.mean(axis=0)
            learned |= {f"mean.{label}": mean, f"lower.{label}": factor(own - mean)}
        return learned

    def _score(self, objects: Objects) -> FloatArray:
        vectors = np.asarray(objects.features, np.float64)
        scores = np.full(len(objects), np.inf)
        for label in np.unique(objects.predicted):
            if f"mean.{label}" not in self._learned:
                continue
            rows = objects.predicted == label
            centred = vectors[rows] - self._learned[f"mean.{label}"]
            scores[rows] = squared_norm(whiten(centred, self._learned[f"lower.{label}"]))
        return scores
