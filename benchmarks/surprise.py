# SPDX-License-Identifier: Apache-2.0
"""Why surprise adequacy and the autoencoder see digits otherwise than in Weiss et al. 2022, Table II.

    python -m benchmarks.surprise --out DIR

DSA is below 0.5 on ambiguous digits there and above it here; the autoencoder notices adversarial digits there and hardly here.
Each suspected cause is changed alone, everything else is the study's (`sticker-uq monitors study --data digits`, whose
ambiguous digits are taken from DIR or left there): what DSA was fitted on, how much of it, where the ambiguous digits come from,
and its two distances each by itself; the bounds of the attacks and the latent space of the autoencoder.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from scipy.spatial.distance import cdist

from benchmarks.result_files import result_folder
from sticker_uq.evaluation.metrics.statistics import area_under_roc
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.studies.ambiguity.raae import train_raaes
from sticker_uq.lab.studies.ambiguity.sampling import TRAINING_DELTA, AmbiguousImages, generate
from sticker_uq.lab.studies.monitors.classifier_attacks import EPSILONS, adversarial, fgsm
from sticker_uq.lab.studies.monitors.classifier_study import (
    AmbiguousCrops,
    StudySettings,
    ambiguous_crops,
    train_members,
)
from sticker_uq.lab.studies.monitors.crop_observations import observe_crops
from sticker_uq.lab.studies.monitors.digits import digits
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.monitors import Objects, monitor_named
from sticker_uq.monitors.crop_network import CropClassifier
from sticker_uq.scene import FloatArray

_BOUNDS = (0.03, 0.1, 0.2, 0.3, 0.5)
_COARSE = tuple(e for e in EPSILONS if e >= 0.3)
_AUTOENCODERS = 2  # further sets of them, for the row that is fitted on more kinds of ambiguous digits
Row = dict[str, float]


def dsa_rows(
    model: CropClassifier, material: Material, made: AmbiguousCrops, same: AmbiguousImages, more: FloatArray
) -> Row:
    """AUC-ROC of DSA on ambiguous digits, with one thing changed in each."""
    seen = observe_crops(model, np.concatenate([material.train, made.training.images]), 1, 0)
    own = np.arange(len(seen)) < len(material.train)
    nominal = observe_crops(model, material.test, 1, 0)
    other = observe_crops(model, made.testing.images, 1, 0)

    def area(fitted: Objects, ambiguous: Objects = other, share: float = 0.3) -> float:
        monitor = monitor_named("dsa", share=share).fit(fitted)
        return area_under_roc(monitor.score(nominal), monitor.score(ambiguous))

    def distances(objects: Objects) -> tuple[FloatArray, FloatArray]:
        assert objects.features is not None
        assert seen.features is not None
        above, below = np.zeros(len(objects)), np.zeros(len(objects))
        for label in np.unique(objects.predicted):
            rows = objects.predicted == label
            mine, others = seen.features[seen.predicted == label], seen.features[seen.predicted != label]
            far = cdist(objects.features[rows], mine)
            above[rows] = far.min(axis=1)
            below[rows] = cdist(mine[far.argmin(axis=1)], others).min(axis=1)
        return above, below

    (a_nominal, b_nominal), (a_other, b_other) = distances(nominal), distances(other)
    return {
        "as in the study": area(seen),
        "tested with digits of the autoencoders that it was fitted on": area(
            seen, observe_crops(model, same.images, 1, 0)
        ),
        "fitted on all activations, not on 30 %": area(seen, share=1.0),
        "the same, tested with digits of the autoencoders that it was fitted on": area(
            seen, observe_crops(model, same.images, 1, 0), 1.0
        ),
        "fitted on all activations and on ambiguous digits of further autoencoders": area(
            observe_crops(model, np.concatenate([material.train, made.training.images, more]), 1, 0),
            share=1.0,
        ),
        "fitted on nominal digits alone": area(seen[own]),
        "its numerator alone, all activations": area_under_roc(a_nominal, a_other),
        "its denominator alone (small: surprising), all activations": area_under_roc(-b_nominal, -b_other),
    }


def autoencoder_rows(model: CropClassifier, material: Material, fitted: Objects) -> tuple[Row, Row]:
    """AUC-ROC of the autoencoder on adversarial digits with one thing changed in each; mean squares of what it compares."""
    usual = monitor_named("autoencoder").fit(fitted)
    wide = monitor_named("autoencoder", latent=16, steps=6000).fit(fitted)
    attacked, numbers = adversarial(model, material.test, material.test_labels, 0)
    coarse, _ = adversarial(model, material.test, material.test_labels, 0, _COARSE)

    def area(crops: FloatArray, which: str = "usual") -> float:
        monitor = {"usual": usual, "wide": wide}[which]
        return area_under_roc(_scores(monitor, material.test), _scores(monitor, crops))

    rows = {
        "as in the study": area(attacked),
        "smallest bound not below 0.3": area(coarse),
        "latent space of 16 dimensions": area(attacked, "wide"),
    }
    crops, labels = torch.from_numpy(material.test), torch.from_numpy(material.test_labels)
    for bound in _BOUNDS:
        rows[f"FGSM with a bound of {bound:g}, whether it works or not"] = area(
            fgsm(model, crops, labels, bound).numpy()
        )
    squares = {
        "reconstruction of nominal digits": float(_scores(usual, material.test).mean()),
        "the same, 16 dimensions": float(_scores(wide, material.test).mean()),
        "what the attacks change": float(((attacked - material.test[numbers]) ** 2).mean()),
        "largest change of a value, median": float(
            np.median(np.abs(attacked - material.test[numbers]).reshape(len(attacked), -1).max(axis=1))
        ),
    }
    return rows, squares


def _scores(monitor: object, crops: FloatArray) -> FloatArray:
    return monitor.score(Objects(probabilities=np.full((len(crops), 2), 0.5), crops=crops))  # type: ignore[attr-defined]


def further(material: Material) -> tuple[AmbiguousImages, FloatArray]:
    """Ambiguous digits to test with of the autoencoders of the study's training, and digits of further autoencoders."""
    sets = [
        train_raaes(material.train, material.train_labels, material.pairs, material.raae, seed)
        for seed in (0, *range(2000, 2000 + _AUTOENCODERS))
    ]
    settings = StudySettings()
    same = generate(sets[0], settings.ambiguous // 2, settings.delta_max, seed=3)
    more = [generate(one, settings.ambiguous, TRAINING_DELTA, seed=4).images for one in sets[1:]]
    return same, np.concatenate(more)


def as_markdown(title: str, rows: list[Row], digits_: int = 3) -> str:
    """Mean and standard deviation over the classifiers."""
    lines = [f"| {title} | mean | deviation |", "|---|---|---|"]
    for name in rows[0]:
        values = [row[name] for row in rows]
        deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
        lines.append(f"| {name} | {np.mean(values):.{digits_}f} | {deviation:.{digits_}f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the experiment and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", required=True, type=result_folder, help="folder for the tables and ambiguous digits"
    )
    parser.add_argument("--seeds", type=int, default=5, help="classifiers")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    material, settings = digits(), replace(StudySettings(), members=1)
    made = ambiguous_crops(material, settings, given.out)
    same, more = further(material)
    found: Mapping[str, list[Row]] = {
        "DSA on ambiguous digits": [],
        "autoencoder on adversarial digits": [],
        "mean square": [],
    }
    for seed in range(given.seeds):
        model = train_members(material, made.training, settings, seed)[0]
        fitted = observe_crops(model, np.concatenate([material.train, made.training.images]), 1, 0)
        parts = (dsa_rows(model, material, made, same, more), *autoencoder_rows(model, material, fitted))
        for rows, part in zip(found.values(), parts, strict=True):
            rows.append(part)
        print(f"classifier {seed + 1} of {given.seeds}", flush=True)
    text = "\n".join(as_markdown(name, rows) for name, rows in found.items())
    print(text)
    with atomic_write(given.out / "surprise.md", "w") as stream:
        stream.write(text)


if __name__ == "__main__":
    main()
