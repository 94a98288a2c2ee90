"""Learns how probably later passes change what is decided: the numbers of `sticker_uq/perception/change_weights.py`.

    sticker-uq dataset render --out labelled --count 1000 --seed 60000000
    sticker-uq calibrate --data labelled --alpha 0.02 --beta 0.1 --threads 1 --out calibrated.yaml
    OMP_NUM_THREADS=1 python -m benchmarks.adaptive_fit --scenes 600 --policies config/policy.yaml calibrated.yaml \\
        --out sticker_uq/perception/change_weights.py

Of every rendered scene all passes are made. After each smaller number of passes every object, and the scene as a whole, is an
example: what is known of it then, and whether its verdict after all passes is another one. A logistic regression per kind of
object. None of the scenes takes part in any other measurement.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.adaptive import Seen, differences, look
from sticker_uq.gate import Policy, judge
from sticker_uq.io.files import atomic_write
from sticker_uq.io.share import share_folder
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.changes import Kind
from sticker_uq.perception.factory import decision
from sticker_uq.perception.sequential import StoppingRule, step_after
from sticker_uq.scene import FloatArray

FIRST_SEED = 51_000_000
Examples = dict[Kind, list[tuple[FloatArray, bool]]]


def main() -> None:
    """Learn, print how often each kind changes, and write the numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument(
        "--policies", type=Path, nargs="+", default=[share_folder() / "config" / "policy.yaml"]
    )
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    settings = PerceptionSettings(device="cpu")
    policies = [Policy.load(path) for path in arguments.policies]
    examples: Examples = defaultdict(list)
    for seen in look(settings, range(arguments.first_seed, arguments.first_seed + arguments.scenes)):
        for policy in policies:
            for kind, features, changes in examples_of(seen, settings, policy):
                examples[kind].append((features, changes))
    weights = {kind: fitted(pairs) for kind, pairs in sorted(examples.items())}
    for kind, pairs in sorted(examples.items()):
        print(f"{kind}: {len(pairs)} examples, {np.mean([changes for _, changes in pairs]):.2%} change")
    with atomic_write(arguments.out, "w") as stream:
        stream.write(module(weights))


def examples_of(
    seen: Seen, settings: PerceptionSettings, policy: Policy
) -> Iterator[tuple[Kind, FloatArray, bool]]:
    """Kind and features of every object of a scene and of the scene, after each number of passes, and whether they change."""
    wanted = judge(seen.scene, policy)
    passes = 0
    while (passes := passes + step_after(passes, settings.min_passes, settings.passes)) < settings.passes:
        scene, samples = seen.after(settings, passes)
        found = judge(scene, policy)
        by_object, elsewhere = differences(wanted, found)
        changes = dict(zip((v.object.id for v in found.verdicts), by_object, strict=True))
        whole = elsewhere > 0 or (wanted.outcome != found.outcome and not any(by_object))
        decide = partial(decision, policy=policy)
        at = StoppingRule(scene, samples, settings.passes, settings.min_cluster_size, decide)
        *objects, (kind, features) = at.features()
        for seen_object, one in zip(scene.objects + scene.unstable, objects, strict=True):
            yield *one, changes[seen_object.id] > 0
        yield kind, features, whole


def fitted(pairs: list[tuple[FloatArray, bool]]) -> FloatArray:
    """Weights (F,) of a logistic regression on the features themselves, the first of which is 1."""
    features, changes = np.array([f for f, _ in pairs]), np.array([c for _, c in pairs])
    scaler = StandardScaler().fit(features[:, 1:])
    model = LogisticRegression(C=1.0, max_iter=2000).fit(scaler.transform(features[:, 1:]), changes)
    weights = model.coef_[0] / scaler.scale_
    return np.array([model.intercept_[0] - weights @ scaler.mean_, *weights])


def module(weights: dict[Kind, FloatArray]) -> str:
    """The text of the module that holds ``weights``."""
    lines = [
        '"""Written by `python -m benchmarks.adaptive_fit`: weights of the features in changes.py, by kind."""',
        "",
        "WEIGHTS: dict[str, tuple[float, ...]] = {",
    ]
    for kind, values in weights.items():
        numbers = [f"{value:.4g}" for value in values]
        rows = [", ".join(numbers[i : i + 10]) for i in range(0, len(numbers), 10)]
        lines += [f'    "{kind}": (', *(f"        {row}," for row in rows), "    ),"]
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    main()
