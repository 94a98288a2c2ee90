# SPDX-License-Identifier: Apache-2.0
"""Dissector: whether the layers of a network agree more and more with what it says in the end (Wang et al. 2020)."""

import warnings

import numpy as np
from scipy.special import softmax

from sticker_uq.perception.monitors.interface import Arrays, Monitor, Objects
from sticker_uq.scene import FloatArray, IntArray

_NEVER = -1e9  # bias of a class that no training object has
_STEPS = 200


class Dissector(Monitor):
    """1 - the weighted mean over the layers of a softmax perceptron's support for the network's class.

    Weights grow linearly with depth, from 1 for the first layer. (The published code begins at 0, which throws the first
    layer away.) The perceptrons learn the true labels where ``fit`` gets them, else the predicted classes.
    """

    name = "dissector"
    needs = ("probabilities", "layers")

    def _fit(self, objects: Objects) -> Arrays:
        assert objects.layers is not None
        classes = objects.predicted if objects.labels is None else objects.labels
        count = objects.probabilities.shape[1]
        learned: Arrays = {}
        for number, layer in enumerate(objects.layers):
            weight, bias = perceptron(np.asarray(layer, np.float64), classes, count)
            learned |= {f"weight.{number}": weight, f"bias.{number}": bias}
        return learned

    def _score(self, objects: Objects) -> FloatArray:
        assert objects.layers is not None
        supports = []
        for number, layer in enumerate(objects.layers):
            weight, bias = self._learned[f"weight.{number}"], self._learned[f"bias.{number}"]
            vectors = softmax(np.asarray(layer, np.float64) @ weight.T + bias, axis=1)
            supports.append(support(vectors, objects.predicted))
        return 1 - np.average(np.stack(supports), axis=0, weights=np.arange(1, len(supports) + 1))


def support(probabilities: FloatArray, said: IntArray) -> FloatArray:
    """How much the vectors (N, K) of one layer support the classes ``said`` (N,), 0..1, (N,).

    l / (l + second) where the layer's best class is the one said, 1 - best / (best + l) where it is another (Wang et al.
    2020, section 3.2).
    """
    rows = np.arange(len(said))
    own = probabilities[rows, said]
    ordered = np.sort(probabilities, axis=1)
    best, second = ordered[:, -1], ordered[:, -2]
    runner_up = np.where(probabilities.argmax(axis=1) == said, second, best)
    return own / np.maximum(own + runner_up, 1e-300)


def perceptron(layer: FloatArray, classes: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Softmax perceptron from activations (N, F) to classes (N,): weight (count, F), bias (count,)."""
    weight, bias = np.zeros((count, layer.shape[1])), np.full(count, _NEVER)
    present = np.unique(classes)
    if len(present) == 1:
        bias[present] = 0.0
        return weight, bias
    # loaded where it is needed: a detector without a panel starts sooner
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(layer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few steps short of the optimum is as good
        model = LogisticRegression(C=1.0, max_iter=_STEPS).fit(scaler.transform(layer), classes)
    coefficients, intercepts = model.coef_, model.intercept_
    if len(present) == 2:  # scikit-learn gives the second class alone
        coefficients = np.concatenate([np.zeros_like(coefficients), coefficients])
        intercepts = np.concatenate([np.zeros(1), intercepts])
    weight[present] = coefficients / scaler.scale_
    bias[present] = intercepts - weight[present] @ scaler.mean_
    return weight, bias
