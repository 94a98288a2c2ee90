# SPDX-License-Identifier: Apache-2.0
"""Why LSA, MDSA, Dissector and the variation ratio differ from Weiss et al. 2022, Table II, on digits.

    python -m benchmarks.monitor_causes --out benchmarks/results/monitor_causes.json --work DIR

Like :mod:`benchmarks.surprise`, for the other differences: one suspected cause is changed at a time, everything else is the
study's (`sticker-uq monitors study --data digits`, whose ambiguous digits are taken from DIR or left there).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.result_files import result_file, result_folder
from sticker_uq.evaluation.metrics.statistics import area_under_roc
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.studies.monitors.classifier_attacks import EPSILONS, adversarial
from sticker_uq.lab.studies.monitors.classifier_study import (
    AmbiguousCrops,
    StudySettings,
    ambiguous_crops,
    draw_labels,
    train_members,
)
from sticker_uq.lab.studies.monitors.corruption import corrupt
from sticker_uq.lab.studies.monitors.crop_observations import observe_crops
from sticker_uq.lab.studies.monitors.digits import digits
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.monitors import Objects, monitor_named, surprise
from sticker_uq.scene import FloatArray

SETS = ("adversarial", "corrupted", "invalid")
PASSES = 100
_COARSE = tuple(bound for bound in EPSILONS if bound >= 0.3)
_RIDGE = 1e-6  # of the mean variance: activations that never vary leave the covariance singular
Seen = Mapping[str, Objects]
Areas = dict[str, dict[str, float]]
"""AUC-ROC by what was changed and by set."""


def areas_of(material: Material, made: AmbiguousCrops, settings: StudySettings, seed: int) -> Areas:
    """AUC-ROC against nominal digits for one classifier, by monitor and change, and by set."""
    model = train_members(material, made.training, settings, seed)[0]
    crops = np.concatenate([material.train, made.training.images])
    drawn = draw_labels(made.training.vectors(len(material.classes)), seed)
    fitted = observe_crops(model, crops, 1, seed, labels=np.concatenate([material.train_labels, drawn]))
    own = fitted[np.arange(len(fitted)) < len(material.train)]
    pictures = {
        "nominal": material.test,
        "adversarial": adversarial(model, material.test, material.test_labels, seed)[0],
        "corrupted": corrupt(material.test, seed),
        "invalid": material.invalid,
    }
    seen = {name: observe_crops(model, found, PASSES, seed) for name, found in pictures.items()}
    coarse = adversarial(model, material.test, material.test_labels, seed, _COARSE)[0]
    larger = {**seen, "adversarial": observe_crops(model, coarse, PASSES, seed)}
    found: Areas = {}
    for name in ("lsa", "mdsa", "dissector"):
        found[f"{name}: as in the study"] = _areas(name, fitted, seen)
        found[f"{name}: fitted on nominal digits alone"] = _areas(name, own, seen)
        found[f"{name}: smallest bound of the attacks not below 0.3"] = _areas(name, fitted, larger)
    with mock.patch.object(surprise, "factor", empirical):
        for name in ("lsa", "mdsa"):
            found[f"{name}: covariance not shrunk"] = _areas(name, fitted, seen)
    without = {name: later_layers(objects) for name, objects in seen.items()}
    found["dissector: first layer with the weight 0"] = _areas("dissector", later_layers(fitted), without)
    for passes in (10, settings.passes, PASSES):
        first = {name: _first_passes(objects, passes) for name, objects in seen.items()}
        found[f"mc_variation_ratio: {passes} passes"] = _areas("mc_variation_ratio", fitted, first)
    return found


def empirical(centred: FloatArray) -> FloatArray:
    """Lower Cholesky factor (F, F) of the covariance of vectors (N, F) as it is, but for a ridge that lets it be inverted."""
    covariance = centred.T @ centred / len(centred)
    ridge = _RIDGE * float(np.trace(covariance)) / len(covariance)
    return np.linalg.cholesky(covariance + ridge * np.eye(len(covariance)))


def read(file: Path) -> list[Areas]:
    """The results of every classifier."""
    found: list[Areas] = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(found: list[Areas]) -> str:
    """Mean and standard deviation over the classifiers, in Markdown."""
    lines = [f"| monitor and change | {' | '.join(SETS)} |", "|---" * (len(SETS) + 1) + "|"]
    for name in sorted(found[0], key=lambda name: name.partition(":")[0]):
        values = np.array([[one[name][kind] for kind in SETS] for one in found])
        spread = values.std(axis=0, ddof=1) if len(found) > 1 else np.zeros(len(SETS))
        cells = (
            f"{mean:.3f} ± {deviation:.3f}"
            for mean, deviation in zip(values.mean(axis=0), spread, strict=True)
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the experiment, print its table and write its result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, type=result_file, help="JSON file of the results")
    parser.add_argument("--work", required=True, type=result_folder, help="folder for the ambiguous digits")
    parser.add_argument("--seeds", type=int, default=5, help="classifiers")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    material, settings = digits(), replace(StudySettings(), members=1)
    made = ambiguous_crops(material, settings, given.work)
    found = []
    for seed in range(given.seeds):
        found.append(areas_of(material, made, settings, seed))
        print(f"classifier {seed + 1} of {given.seeds}", flush=True)
    with atomic_write(given.out, "w") as stream:
        json.dump(found, stream, indent=1)
    print(table(found))


def _areas(name: str, fitted: Objects, seen: Seen) -> dict[str, float]:
    monitor = monitor_named(name).fit(fitted)
    nominal = monitor.score(seen["nominal"])
    return {kind: area_under_roc(nominal, monitor.score(seen[kind])) for kind in SETS}


def later_layers(objects: Objects) -> Objects:
    """``objects`` without the first of their layers."""
    assert objects.layers is not None
    return replace(objects, layers=objects.layers[1:])


def _first_passes(objects: Objects, passes: int) -> Objects:
    assert objects.samples is not None
    return replace(objects, samples=objects.samples[:passes])


if __name__ == "__main__":
    main()
