# SPDX-License-Identifier: Apache-2.0
"""The stochastic engine against the loop of complete torchvision passes, interleaved in one process.

    OMP_NUM_THREADS=1 python -m benchmarks.mc_dropout --no-memory --json benchmarks/results/mc_dropout.json

Both look at the same rendered scenes with the same random weights, whose bias lets 20 to 60 boxes survive a pass. Per model:
`ratio`: time of T complete passes over that of the engine, median of the rounds, and the same in time of the processors, which
other programs distort less; `unshared`: the same with the engine's encode
repeated for every pass, which tells sharing and kernels apart; `equal`: with torch's masks and torchvision's modules on shared
features boxes and vectors are those of complete passes bit for bit, and with the engine's masks and kernels the same number of
boxes, matched within a label, has IoU >= 0.999 and scores within 1e-3; `roofline`: FLOPs of one encode and T passes, as the
definition of the model has them, over the engine's time and the rate of a 3x3 convolution of 256 channels measured in the same
run, above 1 where minimal filtering needs fewer; peak memory of a fresh process each. On a GPU also `waits`: how often torch says
(`torch.cuda.set_sync_debug_mode`) that the processor waited for it, in T complete passes and in the engine's for one image.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torchvision.ops import box_iou

from benchmarks.naive import complete_pass, published_pass
from benchmarks.random_weights import calibrated_model
from benchmarks.result_files import argument_parser, result_file
from sticker_uq.detection import MODEL_NAMES, DetectorSettings, StochasticDetector
from sticker_uq.detection.settings import Precision
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import StochasticSamples

SCENES = (5, 6, 7)
"""Seeds of the rendered scenes, 960x720 px."""


@dataclass(frozen=True)
class Outcome:
    """One row of the table. Times are ms, memory MB; ``boxes``: surviving boxes per pass, mean; waits: None on a processor."""

    model: str
    naive_ms: float
    engine_ms: float
    ratio: float
    processor_ratio: float
    unshared_ratio: float
    equal_reference: bool
    equal_fast: bool
    least_iou: float
    largest_score_difference: float
    roofline: float
    boxes: float
    encode_ms: float
    maps_ms: float
    heads_ms: float
    select_ms: float
    naive_mb: float
    engine_mb: float
    naive_waits: int | None
    engine_waits: int | None


def main() -> None:
    """Measure, print a table, write the file."""
    arguments = _arguments()
    if arguments.peak_of:
        print(_peak_of(arguments))
        return
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}, {arguments.device}"
    )
    print(
        "| model | naive, ms | engine, ms | ratio | of processor time | unshared | equal | roofline | boxes | memory, MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    outcomes = []
    for name in arguments.models:
        outcome = _measure(name, arguments)
        outcomes.append(outcome)
        if arguments.json:
            _record(arguments.json, outcome)
        equal = f"{'exact' if outcome.equal_reference else 'NO'} / {'yes' if outcome.equal_fast else 'NO'}"
        print(
            f"| {name} | {outcome.naive_ms:.0f} | {outcome.engine_ms:.0f} | {outcome.ratio:.2f} | {outcome.processor_ratio:.2f} "
            f"| {outcome.unshared_ratio:.2f} | {equal} | {outcome.roofline:.2f} | {outcome.boxes:.0f} "
            f"| {outcome.engine_mb:.0f} / {outcome.naive_mb:.0f} |",
            flush=True,
        )
    print("\n| model | encode, ms | per pass: maps, ms | heads, ms | choice, ms |\n|---|---|---|---|---|")
    for o in outcomes:
        print(f"| {o.model} | {o.encode_ms:.1f} | {o.maps_ms:.2f} | {o.heads_ms:.2f} | {o.select_ms:.2f} |")
    for o in outcomes:
        if o.engine_waits is not None:
            print(
                f"{o.model}: waits for the GPU per image: {o.engine_waits}, complete passes {o.naive_waits}"
            )


def _record(path: Path, outcome: Outcome) -> None:
    """Put the row into the file, which keeps those of other models."""
    rows = {row["model"]: row for row in (read(path) if path.exists() else [])}
    rows[outcome.model] = asdict(outcome)
    with atomic_write(path, "w") as stream:
        json.dump([rows[name] for name in MODEL_NAMES if name in rows], stream, indent=2)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows that were measured, as of :class:`Outcome`."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Ratios of processor time, and whether the passes are equal."""
    lines = [
        "| model | complete passes over engine | equal, torch's masks | equal, kernels |",
        "|---|---|---|---|",
    ]
    for row in rows:
        equal = ("yes" if row[name] else "NO" for name in ("equal_reference", "equal_fast"))
        lines.append(f"| {' | '.join([row['model'], format(row['processor_ratio'], '.1f'), *equal])} |")
    return "\n".join([*lines, ""])


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODEL_NAMES), choices=MODEL_NAMES)
    parser.add_argument("--min-size", type=int, default=DetectorSettings().min_size)
    parser.add_argument("--passes", type=int, default=DetectorSettings().passes)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=get_args(Precision))
    parser.add_argument("--chunk", type=int, default=0, help="passes at once; 0: as the detector chooses")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--memory", action=argparse.BooleanOptionalAction, default=True, help="measure peak memory"
    )
    parser.add_argument(
        "--trace", type=Path, help="folder for a Chrome trace of one group of passes per model"
    )
    parser.add_argument("--json", type=result_file)
    parser.add_argument("--peak-of", choices=("naive", "engine"), help=argparse.SUPPRESS)
    return parser.parse_args()


def pictures() -> list[NDArray[np.uint8]]:
    """The images that are measured on, which sticker_uq_lab renders: the tests of the core compare passes without it."""
    from sticker_uq_lab.rendering import render, sample_scene

    return [render(sample_scene(seed)).image for seed in SCENES]


def _prepared(
    name: str, arguments: argparse.Namespace
) -> tuple[Any, DetectorSettings, list[NDArray[np.uint8]]]:
    settings = DetectorSettings(
        model=name,
        min_size=arguments.min_size,
        passes=arguments.passes,
        device=arguments.device,
        precision=arguments.precision,
    )
    images = pictures()
    return calibrated_model(settings, images, arguments.seed), settings, images


def _measure(name: str, arguments: argparse.Namespace) -> Outcome:
    model, settings, images = _prepared(name, arguments)
    exact_settings = settings.model_copy(update={"precision": "float32"})
    reference = StochasticDetector(model, exact_settings, "", "reference")
    reference.chunk = 1  # as the loop: convolutions of several images round differently
    engine = StochasticDetector(model, settings, "")
    if arguments.chunk:
        engine.chunk = arguments.chunk
    passes = settings.passes
    for _ in range(2):  # the first calls make primitives
        published_pass(model, settings, images[0])
        engine.sample(engine.encode(images[0]), engine.chunk, 0)
    rounds, busy_ratios = [], []
    for number in range(arguments.rounds):
        image = images[number % len(images)]
        naive_both = [_both_clocks(engine, lambda: published_pass(model, settings, image)) for _ in range(2)]  # noqa: B023
        naive, naive_busy = (median(clock) for clock in zip(*naive_both, strict=True))
        whole, busy = _both_clocks(engine, lambda: engine.sample(engine.encode(image), passes, number))  # noqa: B023
        encode = _timed(engine, lambda: engine.encode(image))  # noqa: B023
        rate = _convolution_rate(engine)
        rounds.append((naive * passes, whole, encode, rate))
        busy_ratios.append(naive_busy * passes / busy)
    ratio = median(naive / whole for naive, whole, _, _ in rounds)
    unshared = median(naive / (whole + (passes - 1) * encode) for naive, whole, encode, _ in rounds)
    flops = _flops(reference, images[0], passes)
    roofline = median(flops / (whole * rate) for _, whole, _, rate in rounds)
    exact = equals_complete_passes(reference, model, images[0], 0.0, 1.0)
    fast = equals_complete_passes(engine, model, images[0], 1e-3, 0.999)
    samples = engine.sample(engine.encode(images[0]), passes, 0)
    stages = _stages(engine, images[0])
    if arguments.trace:
        _trace(engine, images[0], arguments.trace)
    naive_waits = engine_waits = None
    if engine.device.type == "cuda":
        naive_waits = passes * waits(lambda: published_pass(model, settings, images[0]))
        engine_waits = waits(lambda: engine.sample(engine.encode(images[0]), passes, 0))
    kinds = ("naive", "engine")
    peaks = {kind: _peak(kind, name, arguments) if arguments.memory else float("nan") for kind in kinds}
    return Outcome(
        model=name,
        naive_ms=median(r[0] for r in rounds) * 1e3,
        engine_ms=median(r[1] for r in rounds) * 1e3,
        ratio=ratio,
        processor_ratio=median(busy_ratios),
        unshared_ratio=unshared,
        equal_reference=exact[0],
        equal_fast=fast[0],
        least_iou=fast[1],
        largest_score_difference=fast[2],
        roofline=roofline,
        boxes=len(samples) / passes,
        encode_ms=median(r[2] for r in rounds) * 1e3,
        maps_ms=stages[0],
        heads_ms=stages[1],
        select_ms=stages[2],
        naive_mb=peaks["naive"],
        engine_mb=peaks["engine"],
        naive_waits=naive_waits,
        engine_waits=engine_waits,
    )


def waits(action: Callable[[], object]) -> int:
    """How often torch says that the processor waited for a GPU in ``action``.

    Torch says so in each of its own operations that waits, but not what a driver or a library does on its own.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            action()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchronizing CUDA operation" in str(warning.message) for warning in said)


def _timed(engine: StochasticDetector, action: Callable[[], object]) -> float:
    return _both_clocks(engine, action)[0]


def _both_clocks(engine: StochasticDetector, action: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall and of the processors."""
    started, busy = time.perf_counter(), time.process_time()
    action()
    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)
    return time.perf_counter() - started, time.process_time() - busy


def _convolution_rate(engine: StochasticDetector) -> float:
    """FLOP/s of a 3x3 convolution of 256 channels over 120x160 cells in the engine's precision."""
    dtype = getattr(torch, engine.settings.precision, torch.float32)
    x = torch.randn(1, 256, 120, 160, device=engine.device, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(256, 256, 3, 3, device=engine.device, dtype=dtype)
    weight = weight.contiguous(memory_format=torch.channels_last)
    with torch.no_grad(), engine.products():
        F.conv2d(x, weight, padding=1)
        seconds = min(_timed(engine, lambda: F.conv2d(x, weight, padding=1)) for _ in range(3))
    return 2 * 256 * 256 * 9 * 120 * 160 / seconds


def _flops(engine: StochasticDetector, image: NDArray[np.uint8], passes: int) -> float:
    from torch.utils.flop_counter import FlopCounterMode  # imports triton, which nothing else needs

    with FlopCounterMode(display=False) as once:
        features = engine.encode(image)
    with FlopCounterMode(display=False) as each:
        engine.sample(features, 1, 0)
    return float(once.get_total_flops() + passes * each.get_total_flops())


def _stages(engine: StochasticDetector, image: NDArray[np.uint8]) -> tuple[float, float, float]:
    """ms per pass of the feature maps with their masks, of the heads, and of the choice of boxes; median of 5 chunks."""
    features, family, settings = engine.encode(image), engine._engine, engine.settings
    times = []
    with torch.no_grad():
        for _ in range(5):
            dropout = engine.dropout(0, range(engine.chunk))
            made: dict[str, Any] = {}
            maps = _timed(engine, lambda: made.update(m=family.head_maps(features, dropout)))  # noqa: B023
            heads = _timed(
                engine,
                lambda: made.update(r=family.candidates(features, made["m"], dropout, settings.score_floor)),  # noqa: B023
            )
            select = _timed(engine, lambda: engine._suppress(features, made["r"], settings.score_floor))  # noqa: B023
            times.append((maps, heads, select))
    maps_ms, heads_ms, select_ms = (median(t) * 1e3 / engine.chunk for t in zip(*times, strict=True))
    return maps_ms, heads_ms, select_ms


def _trace(engine: StochasticDetector, image: NDArray[np.uint8], folder: Path) -> None:
    """Write a trace of one group of passes and print what takes at least 1 % of its time."""
    features = engine.encode(image)
    activities = [ProfilerActivity.CPU]
    if engine.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as recorded:
        engine.sample(features, engine.chunk, 0)
    folder.mkdir(parents=True, exist_ok=True)
    recorded.export_chrome_trace(str(folder / f"{engine.name}.json"))
    averages = recorded.key_averages()
    whole = sum(a.self_cpu_time_total for a in averages)
    for a in sorted(averages, key=lambda a: -a.self_cpu_time_total):
        if a.self_cpu_time_total >= 0.01 * whole:
            print(f"{engine.name}: {a.key} {a.self_cpu_time_total / whole:.1%}")


def equals_complete_passes(
    detector: StochasticDetector, model: Any, image: NDArray[np.uint8], tolerance: float, least: float
) -> tuple[bool, float, float]:
    """Whether the detector's passes are complete passes with the same masks; the least IoU and largest score difference."""
    samples = detector.sample(detector.encode(image), 3, 1)
    least_iou, difference, equal = 1.0, 0.0, True
    for number in range(3):
        dropout = detector.dropout(1, range(number, number + 1))
        wanted = complete_pass(model, detector.settings, image, dropout)
        found = _of_pass(samples, number)
        if tolerance == 0.0:
            equal &= all(torch.equal(a, b.cpu()) for a, b in zip(found, wanted, strict=True))
            continue
        if len(found[0]) != len(wanted[0]):
            equal = False
            continue
        overlap, apart = _matched(found, (wanted[0].cpu(), wanted[1].cpu()))
        least_iou, difference = min(least_iou, overlap), max(difference, apart)
    return equal and least_iou >= least and difference <= tolerance, least_iou, difference


def _of_pass(samples: StochasticSamples, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = samples.pass_index == number
    return torch.from_numpy(samples.boxes[rows]), torch.from_numpy(samples.probabilities[rows])


def _matched(
    found: tuple[torch.Tensor, torch.Tensor], wanted: tuple[torch.Tensor, torch.Tensor]
) -> tuple[float, float]:
    """Least IoU and largest difference of scores of each box and its best partner of the same label."""
    overlap = box_iou(found[0], wanted[0])
    labels = [p[:, 1:].argmax(dim=1) for _, p in (found, wanted)]
    overlap[labels[0][:, None] != labels[1][None]] = -1.0
    best, partner = overlap.max(dim=1)
    if len(set(partner.tolist())) != len(partner):
        return -1.0, float("inf")
    apart = (found[1] - wanted[1][partner]).abs().max()
    return float(best.min()), float(apart)


def _peak(kind: str, name: str, arguments: argparse.Namespace) -> float:
    """Peak memory in MB of a fresh process that makes all passes of one image in one of the two ways."""
    command = [sys.executable, "-m", "benchmarks.mc_dropout", "--peak-of", kind, "--models", name]
    for option in ("min_size", "passes", "device", "precision", "chunk", "seed"):
        command += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _peak_of(arguments: argparse.Namespace) -> float:
    model, settings, images = _prepared(arguments.models[0], arguments)
    if arguments.peak_of == "naive":
        for _ in range(2):  # a third one takes no more memory
            published_pass(model, settings, images[0])
    else:
        engine = StochasticDetector(model, settings, "")
        engine.sample(engine.encode(images[0]), settings.passes, 0)
    if settings.device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
