"""What distinctive localization costs on top of the stochastic passes, in passes.

    python -m benchmarks.dil_cost

One pass is a stochastic pass of T, from the cached features to suppressed boxes. The look without dropout, the saliency and the
regions are timed in turn with passes of the same model on the same picture, in one process and one thread; the shortest of
several turns counts, in time of the processor, which other programs lengthen least. The weights are random: time does not depend
on them, but for the number of boxes. The network that looks for strangers is timed with its reading of the picture; it is one
for every model. Peak memory is that of the process after the model has run.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import torch

from sticker_uq.datasets import render, sample_scene
from sticker_uq.detection import MODEL_NAMES, DetectorSettings, StochasticDetector, build_model
from sticker_uq.localization import LocalizationSettings, localize
from sticker_uq.localization.network import StrangerNetwork, ready, stranger_maps


def shortest(action: Callable[[], object], before: float) -> float:
    """The smaller of ``before`` and the seconds of the processor that ``action`` takes now."""
    started = time.process_time()
    action()
    return min(before, time.process_time() - started)


def main() -> None:
    """Print one line per model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODEL_NAMES))
    parser.add_argument("--turns", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    image = render(sample_scene(5)).image
    network = ready(StrangerNetwork())
    print(
        "| model | pass, ms | look, ms | saliency and regions, ms | network, ms | DiL in passes | with the network in passes "
        "| peak memory, MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.models:
        torch.manual_seed(0)
        detector = StochasticDetector(build_model(name), DetectorSettings(model=name, device="cpu"), "")
        features = detector.encode(image)
        passes = detector.chunk
        once = look = rest = strange = float("inf")
        for _ in range(arguments.turns):
            once = shortest(lambda: detector.decode(features, passes, 1), once * passes) / passes  # noqa: B023
            features._derived.pop("head_maps", None)  # the maps without dropout are part of the cost
            look = shortest(lambda: detector.look(features), look)  # noqa: B023
            seen = detector.look(features)
            rest = shortest(lambda: localize(seen, LocalizationSettings()), rest)  # noqa: B023
            strange = shortest(lambda: stranger_maps(network, image), strange)
        dil = look + rest
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"| {name} | {once * 1e3:.0f} | {look * 1e3:.0f} | {rest * 1e3:.0f} | {strange * 1e3:.0f} | {dil / once:.2f} "
            f"| {(dil + strange) / once:.2f} | {memory:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
