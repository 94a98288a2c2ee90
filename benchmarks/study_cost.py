# SPDX-License-Identifier: Apache-2.0
"""What encoding an image once for all dropout rates saves a study.

    python -m benchmarks.study_cost

The same cells are computed in turn with one encode per image and with one per image and rate, in one process and one thread;
times are of the processor, the shortest of several turns counts. The weights are random: time depends on them only through the
number of boxes.
"""

from __future__ import annotations

import argparse
import time

import torch

from sticker_uq.detection import DetectorSettings, StochasticDetector, build_model
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.lab.studies.detectors.study_plan import RATES


def main() -> None:
    """Print one line per model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=[DetectorSettings().model])
    parser.add_argument("--passes", type=int, default=DetectorSettings().passes)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    image = render(sample_scene(5)).image
    rates = [rate for rate in RATES if rate]
    print(f"{len(rates)} dropout rates, T = {arguments.passes}")
    print("| model | once for all rates, ms | once per rate, ms | ratio | encode, ms |")
    print("|---|---|---|---|---|")
    for name in arguments.models:
        torch.manual_seed(0)
        model = build_model(name)
        settings = [DetectorSettings(model=name, device="cpu", dropout_rate=rate) for rate in rates]
        detectors = [StochasticDetector(model, one, "") for one in settings]
        shared = single = encode = float("inf")
        for _ in range(arguments.turns):
            started = time.process_time()
            features = detectors[0].encode(image)
            encode = min(encode, time.process_time() - started)
            for detector in detectors:
                detector.sample(features, arguments.passes, 1)
            shared = min(shared, time.process_time() - started)
            started = time.process_time()
            for detector in detectors:
                detector.sample(detector.encode(image), arguments.passes, 1)
            single = min(single, time.process_time() - started)
        print(
            f"| {name} | {shared * 1e3:.0f} | {single * 1e3:.0f} | {single / shared:.2f} | {encode * 1e3:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
