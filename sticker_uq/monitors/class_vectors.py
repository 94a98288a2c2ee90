# SPDX-License-Identifier: Apache-2.0
"""Monitors that read class vectors: of one pass, of T stochastic passes, of an ensemble (Weiss et al. 2022, section VII-B).

All entropies are in bits, with 0 log 0 = 0.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from sticker_uq.monitors.interface import Monitor
from sticker_uq.monitors.objects import Objects
from sticker_uq.scene import FloatArray
from sticker_uq.uncertainty.metrics import entropy


class _Vectors(Monitor):
    """Reads what is given and learns nothing."""

    learns = False


class MaxSoftmax(_Vectors):
    """Monitor of the largest class probability: 1 - max p (Hendrycks and Gimpel 2016)."""

    name = "max_softmax"
    needs = ("probabilities",)

    def _score(self, objects: Objects) -> FloatArray:
        return 1 - objects.probabilities.max(axis=1)


class PredictionConfidence(_Vectors):
    """Monitor: 1 - (largest p - second largest p): the prediction confidence score (Zhang et al. 2020)."""

    name = "pcs"
    needs = ("probabilities",)

    def _score(self, objects: Objects) -> FloatArray:
        ordered = np.sort(objects.probabilities, axis=1)
        return 1 - (ordered[:, -1] - ordered[:, -2])


class DeepGini(_Vectors):
    """Monitor: 1 - sum of p^2 (Feng et al. 2020)."""

    name = "deep_gini"
    needs = ("probabilities",)

    def _score(self, objects: Objects) -> FloatArray:
        return 1 - (objects.probabilities**2).sum(axis=1)


class SoftmaxEntropy(_Vectors):
    """Monitor: entropy of p in bits."""

    name = "softmax_entropy"
    needs = ("probabilities",)

    def _score(self, objects: Objects) -> FloatArray:
        return entropy(objects.probabilities)


class Energy(_Vectors):
    """Monitor: -log sum exp of the logits (Liu et al. 2020, temperature 1)."""

    name = "energy"
    needs = ("logits",)

    def _score(self, objects: Objects) -> FloatArray:
        return -np.asarray(logsumexp(objects.logits, axis=1))


class _Sampled(_Vectors):
    """Reads class vectors (T, N, K) of several networks or passes; an object that none of them saw scores NaN."""

    def _vectors(self, objects: Objects) -> FloatArray:
        found = getattr(objects, self.needs[0])
        return np.asarray(found, np.float64)

    def _mean(self, objects: Objects) -> FloatArray:
        vectors = self._vectors(objects)
        seen = np.isfinite(vectors).all(axis=2, keepdims=True)
        counted = seen.sum(axis=0)
        total = np.where(seen, vectors, 0.0).sum(axis=0)
        return np.divide(total, counted, out=np.full(total.shape, np.nan), where=counted > 0)

    def _mean_entropy(self, objects: Objects) -> FloatArray:
        vectors = self._vectors(objects)
        seen = np.asarray(np.isfinite(vectors).all(axis=2))
        counted = seen.sum(axis=0)
        each = np.where(seen, entropy(np.where(seen[..., None], vectors, 0.0)), 0.0)
        return np.divide(each.sum(axis=0), counted, out=np.full(counted.shape, np.nan), where=counted > 0)


class _VariationRatio(_Sampled):
    """Share of the passes whose most probable class is not the commonest one (Gal 2016)."""

    def _score(self, objects: Objects) -> FloatArray:
        vectors = self._vectors(objects)
        seen = np.asarray(np.isfinite(vectors).all(axis=2))
        winners = np.where(seen[..., None], vectors, -1.0).argmax(axis=2)
        votes = np.stack([((winners == k) & seen).sum(axis=0) for k in range(vectors.shape[2])])
        counted = seen.sum(axis=0)
        return 1 - np.divide(
            votes.max(axis=0), counted, out=np.full(counted.shape, np.nan), where=counted > 0
        )


class _MutualInformation(_Sampled):
    """Entropy of the mean class vector minus the mean entropy of the vectors, bits."""

    def _score(self, objects: Objects) -> FloatArray:
        difference = entropy(self._mean(objects)) - self._mean_entropy(objects)
        return np.maximum(difference, 0.0)  # rounding; NaN stays NaN


class _PredictiveEntropy(_Sampled):
    """Entropy of the mean class vector, bits."""

    def _score(self, objects: Objects) -> FloatArray:
        return entropy(self._mean(objects))


class _MeanSoftmax(_Sampled):
    """1 - the largest value of the mean class vector."""

    def _score(self, objects: Objects) -> FloatArray:
        return 1 - self._mean(objects).max(axis=1)


class McVariationRatio(_VariationRatio):
    """Monitor: variation ratio of Monte-Carlo dropout."""

    name = "mc_variation_ratio"
    needs = ("samples",)


class McMutualInformation(_MutualInformation):
    """Monitor: mutual information of Monte-Carlo dropout."""

    name = "mc_mutual_information"
    needs = ("samples",)


class McPredictiveEntropy(_PredictiveEntropy):
    """Monitor: predictive entropy of Monte-Carlo dropout."""

    name = "mc_predictive_entropy"
    needs = ("samples",)


class McMeanSoftmax(_MeanSoftmax):
    """Monitor: mean softmax of Monte-Carlo dropout."""

    name = "mc_mean_softmax"
    needs = ("samples",)


class EnsembleMutualInformation(_MutualInformation):
    """Monitor: mutual information of a deep ensemble (Lakshminarayanan et al. 2017)."""

    name = "ensemble_mutual_information"
    needs = ("members",)


class EnsemblePredictiveEntropy(_PredictiveEntropy):
    """Monitor: predictive entropy of a deep ensemble."""

    name = "ensemble_predictive_entropy"
    needs = ("members",)


class EnsembleMeanSoftmax(_MeanSoftmax):
    """Monitor: mean softmax of a deep ensemble."""

    name = "ensemble_mean_softmax"
    needs = ("members",)
