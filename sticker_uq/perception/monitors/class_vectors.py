# SPDX-License-Identifier: Apache-2.0
"""Monitors that read class vectors: of one pass, of T stochastic passes, of an ensemble (Weiss et al. 2022, section VII-B).

All entropies are in bits, with 0 log 0 = 0.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from sticker_uq.perception.monitors.interface import Monitor, Objects
from sticker_uq.scene import FloatArray
from sticker_uq.uncertainty.metrics import entropy


def _margin(p: FloatArray) -> FloatArray:
    ordered = np.sort(p, axis=1)
    return np.asarray(ordered[:, -1] - ordered[:, -2])


def _mean(values: FloatArray) -> FloatArray:
    """The mean of ``values`` (T, N, ...) over the passes that saw the object, whose others are NaN; NaN where none did."""
    seen = np.isfinite(values)
    counted = seen.sum(axis=0)
    total = np.where(seen, values, 0.0).sum(axis=0)
    return np.divide(total, counted, out=np.full(counted.shape, np.nan), where=counted > 0)


def _votes(v: FloatArray) -> FloatArray:
    seen = np.isfinite(v).all(axis=2, keepdims=True)
    return np.where(seen, v.argmax(axis=2)[..., None] == np.arange(v.shape[2]), np.nan)


Formula = Callable[[FloatArray], FloatArray]
SINGLE: dict[str, Formula] = {
    "max_softmax": lambda p: 1 - p.max(axis=1),  # Hendrycks and Gimpel 2016
    "pcs": lambda p: 1 - _margin(p),  # prediction confidence score, Zhang et al. 2020
    "deep_gini": lambda p: 1 - (p**2).sum(axis=1),  # Feng et al. 2020
    "softmax_entropy": entropy,
}
"""Monitors of one class vector per object (N, K), by name."""
SAMPLED: dict[str, Formula] = {
    "variation_ratio": lambda v: 1 - _mean(_votes(v)).max(axis=1),  # Gal 2016
    # rounding may go below 0; NaN stays NaN
    "mutual_information": lambda v: np.maximum(entropy(_mean(v)) - _mean(entropy(v)), 0.0),
    "predictive_entropy": lambda v: entropy(_mean(v)),
    "mean_softmax": lambda v: 1 - _mean(v).max(axis=1),
}
"""Monitors of the class vectors (T, N, K) of several passes or networks, by name without its prefix; an object that none of them
saw scores NaN.
"""


class VectorMonitor(Monitor):
    """A monitor that is a formula over class vectors and learns nothing."""

    learns = False
    formula: Formula

    def _score(self, objects: Objects) -> FloatArray:
        vectors = getattr(objects, self.needs[0])
        return self.formula(np.asarray(vectors, np.float64) if vectors.ndim == 3 else vectors)


def _make_class(name: str, reads: str, formula: Formula) -> type[Monitor]:
    return type(name, (VectorMonitor,), {"name": name, "needs": (reads,), "formula": staticmethod(formula)})


PAPER_VECTORS = (
    *(_make_class(name, "probabilities", formula) for name, formula in SINGLE.items()),
    # Monte Carlo dropout
    *(_make_class(f"mc_{name}", "samples", formula) for name, formula in SAMPLED.items()),
    # deep ensembles, Lakshminarayanan et al. 2017; their networks seldom vote against each other
    *(
        _make_class(f"ensemble_{name}", "members", formula)
        for name, formula in SAMPLED.items()
        if name != "variation_ratio"
    ),
)
ENERGY = _make_class("energy", "logits", lambda z: -np.asarray(logsumexp(z, axis=1)))
"""-log sum exp of the logits (Liu et al. 2020, temperature 1)."""
