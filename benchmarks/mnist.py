# SPDX-License-Identifier: Apache-2.0
"""Tables I and II of Weiss et al. 2022 on MNIST itself, beside the paper's, and what makes the differences.

    sticker-uq monitors study --data mnist=MNIST --invalid FMNIST ... --out STUDY
    python -m benchmarks.mnist --data MNIST --invalid FMNIST --study STUDY --out benchmarks/results/mnist.json [--causes N]

The first command trains and measures; the second takes the finished seeds from its folder, so that an unfinished study can be
shown too. ``--causes N`` also changes one suspected cause at a time for the first N convolutional classifiers: what a monitor is
fitted on, the bounds of the attacks, the capacity of the autoencoder. Their networks are kept in STUDY/causes.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import papers
from benchmarks.monitor_causes import empirical, later_layers
from benchmarks.papers import SETS
from benchmarks.result_files import result_file
from sticker_uq.evaluation.metrics.statistics import area_under_roc
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.studies.monitors.classifier_attacks import EPSILONS, adversarial
from sticker_uq.lab.studies.monitors.classifier_study import (
    PUBLISHED,
    AmbiguousCrops,
    StudySettings,
    ambiguous_crops,
    draw_labels,
    train_members,
)
from sticker_uq.lab.studies.monitors.corruption import corrupt
from sticker_uq.lab.studies.monitors.crop_observations import observe_crops
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.lab.studies.monitors.mnist import mnist
from sticker_uq.monitors import Objects, monitor_named, surprise
from sticker_uq.scene import InvalidInput

TABLES = ("ambiguity", "supervisors", "reasons", "causes")
_SEED = re.compile(r"(?:(\w+)_)?seed_(\d+)_[0-9a-f]{16}\.json")
_COARSE = tuple(bound for bound in EPSILONS if bound >= 0.3)
_COLUMNS = {"top_1": "Top-1", "top_2": "Top-2", "top_pair": "Top-Pair", "entropy": "entropy, bits"}
_ROWS = {PUBLISHED: "ambiguous, delta_max 0.25", "nominal": "nominal"}
Seen = Mapping[str, Objects]
Areas = dict[str, dict[str, float]]
"""AUC-ROC by what was changed and by set."""
Found = dict[str, Any]
"""``seeds``: results by kind of classifier; ``causes``: :data:`Areas` of each classifier; ``reasons`` of large differences."""


def collected(study: Path) -> dict[str, list[dict[str, Any]]]:
    """What the finished seeds of the study in the folder ``study`` found, by kind of classifier, in order of the seeds."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for file in sorted(study.glob("*seed_*.json")):
        name = _SEED.fullmatch(file.name)
        if name is None:
            continue
        one = json.loads(file.read_text(encoding="utf-8"))
        kept = {key: one[key] for key in ("accuracy", "table_1", "auc", "counts")}
        seeds = found.setdefault(name[1] or "convolutional", {})
        if int(name[2]) in seeds:
            raise InvalidInput(f"{study}: results of two studies, expected those of one: {file.name}")
        seeds[int(name[2])] = kept
    if not found:
        raise InvalidInput(
            f"{study}: no result of a seed, expected seed_0_*.json of `sticker-uq monitors study`"
        )
    return {kind: [seeds[number] for number in sorted(seeds)] for kind, seeds in found.items()}


def areas_of(
    material: Material, made: AmbiguousCrops, settings: StudySettings, seed: int, folder: Path
) -> Areas:
    """AUC-ROC against nominal digits for one convolutional classifier, by monitor and change, and by set."""
    model = train_members(material, made.training, settings, seed, folder=folder)[0]
    crops = np.concatenate([material.train, made.training.images])
    labels = draw_labels(made.training.vectors(len(material.classes)), seed)
    fitted = observe_crops(model, crops, 1, seed, labels=np.concatenate([material.train_labels, labels]))
    own = fitted[np.arange(len(fitted)) < len(material.train)]
    balanced = fitted[_balanced(len(material.train), len(fitted), seed)]
    pictures = {
        "nominal": material.test,
        "ambiguous": made.testing.images,
        "adversarial": adversarial(model, material.test, material.test_labels, seed)[0],
        "corrupted": corrupt(material.test, seed),
        "invalid": material.invalid,
    }
    seen = {name: observe_crops(model, found, 1, seed) for name, found in pictures.items()}
    coarse = adversarial(model, material.test, material.test_labels, seed, _COARSE)[0]
    larger = {**seen, "adversarial": observe_crops(model, coarse, 1, seed)}
    found: Areas = {}
    for name in ("autoencoder", "lsa", "mdsa", "dissector"):
        found[f"{name}: as in the study"] = _areas(monitor_named(name).fit(fitted), seen)
        found[f"{name}: smallest bound of the attacks not below 0.3"] = _areas(
            monitor_named(name).fit(fitted), larger
        )
        found[f"{name}: fitted on nominal digits alone"] = _areas(monitor_named(name).fit(own), seen)
        found[f"{name}: fitted on 1.5 ambiguous digits for each nominal one"] = _areas(
            monitor_named(name).fit(balanced), seen
        )
    wide = monitor_named("autoencoder", latent=16, steps=6000).fit(fitted)
    found["autoencoder: latent space of 16 dimensions, 6000 steps"] = _areas(wide, seen)
    with mock.patch.object(surprise, "factor", empirical):
        for name in ("lsa", "mdsa"):
            found[f"{name}: covariance not shrunk"] = _areas(monitor_named(name).fit(fitted), seen)
    few = {name: later_layers(objects) for name, objects in seen.items()}
    found["dissector: first layer with the weight 0"] = _areas(
        monitor_named("dissector").fit(later_layers(fitted)), few
    )
    return found


def _balanced(nominal: int, count: int, seed: int) -> Any:
    """Rows of all ambiguous crops and of as many nominal ones as the study of scikit-learn's digits has for each, 1 to 1.5."""
    rng = np.random.default_rng(seed)
    ambiguous = np.arange(nominal, count)
    return np.concatenate([rng.permutation(nominal)[: round(len(ambiguous) / 1.5)], ambiguous])


def _areas(monitor: Any, seen: Seen) -> dict[str, float]:
    nominal = monitor.score(seen["nominal"])
    return {kind: area_under_roc(nominal, monitor.score(seen[kind])) for kind in SETS}


def read(file: Path) -> Found:
    """The results in ``file``."""
    found: Found = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(found: Found, name: str) -> str:
    """The table ``name`` in Markdown: one of TABLES."""
    printed = papers.read(papers.ROOT / "benchmarks/results/papers.json")["weiss"]
    made = {"ambiguity": _ambiguity, "supervisors": _supervisors, "reasons": _reasons, "causes": _causes}
    return made[name](found, printed)


def _ambiguity(found: Found, printed: dict[str, Any]) -> str:
    """Table I: the paper's, and ours by kind of classifier."""
    rows = []
    for key, title in _ROWS.items():
        cells = dict(zip(_COLUMNS, printed["table_1"][title], strict=True))
        rows.append((title, "paper", *(papers.number(value) for value in cells.values())))
        for kind, seeds in found["seeds"].items():
            ours = [_mean([one["table_1"][key][column] for one in seeds]) for column in _COLUMNS]
            rows.append((title, kind, *ours))
    return papers.markdown(("crops", "of", *_COLUMNS.values()), rows)


def _supervisors(found: Found, printed: dict[str, Any]) -> str:
    """Table II: the paper's, ours over all classifiers, and the difference."""
    rows = []
    for monitor, cells in printed["table_2"].items():
        row = [monitor]
        for one, paper in zip(SETS, cells, strict=True):
            here = _ours(found, monitor, one)
            known = paper is not None and here is not None
            row.append(
                f"{papers.number(paper)} / {papers.number(here)}"
                + (f" ({here - paper:+.2f})" if known else "")
            )
        rows.append(row)
    return papers.markdown(("monitor", *(f"{one}: paper / here (difference)" for one in SETS)), rows)


def _reasons(found: Found, printed: dict[str, Any]) -> str:
    """Every difference above papers.LARGE with what scikit-learn's digits gave, and its reason.

    Raises LookupError for a difference without a reason, and for a reason without a difference.
    """
    given = dict(found["reasons"])
    small = {
        row["monitor"]: row
        for row in papers.rows_of("monitors.md", "## Results on handwritten digits", "monitor")
    }
    rows = []
    for monitor, cells in printed["table_2"].items():
        for one, paper in zip(SETS, cells, strict=True):
            here = _ours(found, monitor, one)
            if paper is None or here is None or round(abs(here - paper), 3) <= papers.LARGE:
                continue
            reason = given.pop(f"{monitor} {one}", None)
            if reason is None:
                raise LookupError(
                    f"mnist.json: no reason for {monitor} on {one}, {paper} in the paper, {here:.3f} here"
                )
            rows.append((monitor, one, f"{paper:.2f}", f"{here:.2f}", small[monitor][one].split()[0], reason))
    if given:
        raise LookupError(f"mnist.json: reasons without a difference: {', '.join(given)}")
    return papers.markdown(("monitor", "set", "paper", "MNIST", "digits of scikit-learn", "reason"), rows)


def _causes(found: Found, printed: dict[str, Any]) -> str:
    """What one change makes of the AUC-ROC, mean over the classifiers."""
    rows = [
        (name, *(_mean([one[name][kind] for one in found["causes"]]) for kind in SETS))
        for name in sorted(found["causes"][0], key=lambda name: name.partition(":")[0])
    ]
    return papers.markdown(("monitor and change", *SETS), rows)


def _ours(found: Found, monitor: str, one: str) -> float | None:
    values = [seed["auc"][monitor][one] for seeds in found["seeds"].values() for seed in seeds]
    return None if values[0] is None else float(np.mean(values))


def _mean(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "n/a"
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def main() -> None:
    """Collect the finished seeds, look for causes, print the tables and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, type=Path, help="folder with MNIST")
    parser.add_argument("--invalid", required=True, type=Path, help="folder with Fashion-MNIST")
    parser.add_argument("--study", required=True, type=Path, help="folder of the study")
    parser.add_argument("--out", required=True, type=result_file, help="JSON file of the results")
    parser.add_argument("--ambiguous", type=int, default=20000, help="as in the study")
    parser.add_argument("--causes", type=int, default=0, help="classifiers whose causes are looked for")
    given = parser.parse_args()
    found: Found = {"seeds": {}, "causes": [], "reasons": {}}
    if given.out.exists():
        found |= read(given.out)
    found["seeds"] = collected(given.study)
    if given.causes:
        material = mnist(given.data, "mnist", given.invalid)
        settings = replace(StudySettings(), members=1, ambiguous=given.ambiguous)
        made = ambiguous_crops(material, settings, given.study)
        folder = given.study / "causes"
        folder.mkdir(exist_ok=True)
        found["causes"] = [
            areas_of(material, made, settings, seed, folder / f"seed_{seed}") for seed in range(given.causes)
        ]
    with atomic_write(given.out, "w") as stream:
        json.dump(found, stream, indent=1)
        stream.write("\n")
    for name in TABLES[:2]:
        print(f"{table(found, name)}\n")


if __name__ == "__main__":
    main()
