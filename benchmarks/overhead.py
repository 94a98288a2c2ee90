# SPDX-License-Identifier: Apache-2.0
"""What the detector's worker does for an image beside the networks, in time of the processor.

    OMP_NUM_THREADS=1 python -m benchmarks.overhead

Other programs distort `overhead_ms` of the diagnostics, which is time on the wall; this is time of the thread that assesses, per
rendered scene: the stages in which networks compute, and all else: clustering, metrics, the assessment, its messages made and
serialised. The digest of the pixels is measured in another thread while the network encodes, so it counts for nothing here, as in
the node. Printed are medians and the median of their ratio.
"""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace

import numpy as np
from rclpy.serialization import serialize_message

from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.nodes.common import conversions
from sticker_uq.perception import ImageFacts, Perception, PerceptionSettings, pipeline
from sticker_uq.perception.exposure import measure_exposure
from sticker_uq.perception.stages import MODEL_STAGES
from sticker_uq.scene import SceneAssessment

PARTS = (
    conversions.detections_to_msg,
    conversions.uncertainty_to_msg,
    conversions.localization_to_msg,
)


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="*", default=["640x480", "1280x960", "1920x1080"])
    parser.add_argument("--scenes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    # the stages are timed on the clock of this thread
    vars(pipeline)["time"] = SimpleNamespace(perf_counter=time.thread_time)
    perception = Perception(PerceptionSettings(device="cpu"))
    perception.warm_up()
    print("| size | networks, ms | all else, ms | all else over networks |\n|---|---|---|---|")
    for size in arguments.sizes:
        width, height = map(int, size.split("x"))
        pairs = []
        for seed in range(arguments.scenes):
            image = render(sample_scene(seed), (width, height)).image
            facts = ImageFacts("", measure_exposure(image))
            for _ in range(arguments.rounds):
                scene = perception.assess(image, 1, facts=facts)
                networks = sum(scene.timings.get(stage, 0.0) for stage in MODEL_STAGES)
                pairs.append((networks, scene.timings["total"] - networks + _message_ms(scene)))
        networks_ms, rest_ms = np.median(pairs, axis=0)
        print(
            f"| {size} | {networks_ms:.1f} | {rest_ms:.1f} | {np.median([r / n for n, r in pairs]):.1%} |",
            flush=True,
        )


def _message_ms(scene: SceneAssessment) -> float:
    started = time.thread_time()
    serialize_message(conversions.scene_to_msg(scene, 1))
    for part in PARTS:
        serialize_message(part(scene))
    return (time.thread_time() - started) * 1e3


if __name__ == "__main__":
    main()
