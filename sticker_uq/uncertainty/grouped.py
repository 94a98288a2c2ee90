"""What :mod:`sticker_uq.uncertainty.metrics` says of one object, for all objects of an image in one go and bit for bit the same.

Calls for each of many small objects cost more than the numbers do. Sums are taken in the order in which NumPy takes those of
one object: row after row for means, which is why no ``reduceat`` is used, whose order differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sticker_uq.scene import CLASS_COUNT, FloatArray, IntArray, StochasticSamples
from sticker_uq.uncertainty import metrics
from sticker_uq.uncertainty.overlap import box_areas


@dataclass(frozen=True)
class Grouped:
    """The rows of G objects one after the other: ``boxes`` (N, 4) and class ``vectors`` (N, 3), both float64, with the object
    of each row in ``owner`` (N,), 0 .. G-1 ascending; ``sizes`` (G,) rows of each, ``passes`` (G,) distinct passes of each.
    """

    boxes: FloatArray
    vectors: FloatArray
    owner: IntArray
    sizes: IntArray
    passes: IntArray

    @classmethod
    def of(cls, samples: StochasticSamples, members: Sequence[IntArray]) -> Grouped:
        """The objects whose rows in ``samples`` are ``members``, at least one, each with at least one row."""
        rows = np.concatenate(members)
        sizes = np.array([len(one) for one in members])
        owner = np.repeat(np.arange(len(members)), sizes)
        seen = np.zeros((len(members), int(samples.pass_index.max()) + 1), bool)
        seen[owner, samples.pass_index[rows]] = True
        return cls(
            samples.boxes[rows].astype(np.float64),
            metrics.distributions(samples.probabilities[rows]),
            owner,
            sizes,
            seen.sum(axis=1),
        )

    def slices(self) -> list[slice]:
        """The rows of each object."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes.tolist(), strict=True)]

    def means(self, values: FloatArray) -> FloatArray:
        """Mean over each object's rows of ``values`` (N, K), (G, K)."""
        width = values.shape[1]
        sums = np.zeros(len(self.sizes) * width)
        np.add.at(sums, (self.owner[:, None] * width + np.arange(width)).ravel(), values.ravel())
        return sums.reshape(-1, width) / self.sizes[:, None]


def covariances(objects: Grouped, box_means: FloatArray) -> FloatArray:
    """:func:`metrics.box_covariance` of each object, (G, 4, 4) px^2; ``box_means`` (G, 4)."""
    centred = objects.boxes - box_means[objects.owner]
    parts = (centred[rows] for rows in objects.slices())
    return np.stack([part.T @ part / len(part) for part in parts])


def measures(
    objects: Grouped,
    box_means: FloatArray,
    class_means: FloatArray,
    covariance: FloatArray,
    surfaces: FloatArray,
) -> dict[str, FloatArray]:
    """The metrics of each object by name, (G,) each: from its means (G, 4) and (G, 3), ``covariance`` (G, 4, 4) and predictive
    ``surfaces`` (G,).
    """
    votes = np.bincount(
        objects.owner * CLASS_COUNT + objects.vectors.argmax(axis=1), minlength=class_means.size
    )
    entropy = metrics.entropy(class_means)
    each = metrics.entropy(objects.vectors)
    variance = np.trace(covariance, axis1=1, axis2=2)
    area = box_areas(box_means)
    area = np.where(area > 0.0, area, np.nan)
    return {
        "variation_ratio": 1.0 - votes.reshape(class_means.shape).max(axis=1) / objects.sizes,
        "shannon_entropy": entropy,
        "mutual_information": np.maximum(0.0, entropy - [each[rows].mean() for rows in objects.slices()]),
        "total_variance": variance,
        "predictive_surface": surfaces,
        "relative_total_variance": variance / area,
        "relative_predictive_surface": surfaces / area,
    }
