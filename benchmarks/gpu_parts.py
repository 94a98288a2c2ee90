# SPDX-License-Identifier: Apache-2.0
"""The parts of :mod:`benchmarks.gpu`: what is measured of the device, and of each model on it."""

import argparse
import itertools
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import metadata
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch.profiler import ProfilerActivity, profile
from torchvision.ops import MultiScaleRoIAlign, box_iou, nms

from benchmarks.mc_dropout import equals_complete_passes, pictures, waits
from benchmarks.naive import published_pass
from benchmarks.random_weights import calibrated_model
from sticker_uq.detection import (
    DetectorSettings,
    NonFiniteOutput,
    StochasticDetector,
    load_detector,
    save_weights,
)
from sticker_uq.detection.detector import resolve_device
from sticker_uq.detection.dropout import CounterDropout
from sticker_uq.detection.kernels.fast_faster_rcnn import BagPooling, greedy_nms
from sticker_uq.detection.kernels.pixels import network_input
from sticker_uq.detection.selection import top_ranked
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.dil import LocalizationSettings, localize
from sticker_uq.perception.dil.dil import objectness_gradients
from sticker_uq.scene import InvalidInput, StochasticSamples

Row = dict[str, Any]
FEW = 4
"""Passes that are compared with the processor's."""
SAME_PLACE = 0.9
_PACKAGES = ("torch", "torchvision", "numpy", "opencv-python-headless", "scipy", "scikit-learn", "hdbscan")


def environment(arguments: argparse.Namespace) -> Row:
    """Versions, and what the device is."""
    found: Row = {"python": platform.python_version(), "machine": platform.machine()}
    found |= {package: _version(package) for package in _PACKAGES}
    device = resolve_device(arguments.device)
    found |= {"cuda": torch.version.cuda, "threads": torch.get_num_threads()}
    if device.type == "cuda":
        found |= {
            "cudnn": torch.backends.cudnn.version(),
            "capability": torch.cuda.get_device_capability(device),
            "built_for": torch.cuda.get_arch_list(),
            "memory_mb": torch.cuda.mem_get_info(device)[1] / 2**20,
        }
    one = torch.empty(2**25, device=device)
    other = torch.empty_like(one)
    copied = _timed(lambda: other.copy_(one), 10, device)["p50"]
    return found | {"copy_gb_per_s": 2 * one.nbytes / copied / 1e6}


def kernels(arguments: argparse.Namespace) -> Row:
    """Whether masks, order and suppression are the processor's; how far pixels and pooling are from it."""
    cpu, device = torch.device("cpu"), resolve_device(arguments.device)
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 672, 20, 20), (1, 256, 60, 80), (1, 512, 38, 38), (1, 24, 1, 1), (1, 7, 3, 5))

    def masks(on: torch.device) -> list[torch.Tensor]:
        dropout = CounterDropout(0.2, 5, range(20), on)
        return [dropout.masks(torch.empty(shape, device=on)).cpu() for shape in shapes]

    scores = torch.randn(20, 57600, generator=generator).sigmoid()
    scores[:, ::3] = scores[:, :1]  # equal ones
    low = torch.rand(10, 1000, 2, generator=generator) * 400
    boxes = torch.cat([low, low + torch.rand(10, 1000, 2, generator=generator) * 120], dim=-1)
    usable = torch.ones(10, 1000, dtype=torch.bool)
    kept = greedy_nms(boxes.to(device), usable.to(device), 0.7).cpu()
    wanted = torch.zeros_like(kept)
    falling = torch.arange(1000, 0, -1.0)
    for group, of_group in enumerate(boxes):
        wanted[group, nms(of_group, falling, 0.7)] = True

    transform = load_detector(DetectorSettings(device="cpu")).model.transform
    image = np.random.default_rng(0).integers(0, 256, (960, 1280, 3), dtype=np.uint8)
    pixels = [network_input(transform, image, on).tensors.cpu() for on in (cpu, device)]

    sizes = ((120, 160), (60, 80))
    maps = [torch.randn(1, 256, *size, generator=generator).to(device) for size in sizes]
    pool = MultiScaleRoIAlign(["0", "1"], 7, 2)
    pooled = pool({"0": maps[0], "1": maps[1]}, [boxes[0].to(device)], [(480, 640)])
    last = [m.contiguous(memory_format=torch.channels_last) for m in maps]
    none = torch.zeros(1000, dtype=torch.int64, device=device)
    made = BagPooling(pool)(last, boxes[0].to(device), none, (480, 640))
    return {
        "masks_equal": all(map(torch.equal, masks(cpu), masks(device))),
        "order_equal": torch.equal(top_ranked(scores, 1000), top_ranked(scores.to(device), 1000).cpu()),
        "suppression_equal": torch.equal(kept, wanted),
        "pixels_most": float((pixels[0] - pixels[1]).abs().max()),
        "pooling_most": float((made - pooled).abs().max()),
    }


def agreement(arguments: argparse.Namespace) -> Row:
    """Per precision: how the passes on the device compare with those of the processor in float32."""
    (model,) = arguments.models
    weights, (image, *_) = _weights(model, arguments)
    processor = _detector(model, weights, arguments, "cpu", "float32")
    features = processor.encode(image)
    wanted = processor.sample(features, FEW, 3)
    gradients = objectness_gradients(processor.deterministic_pass(features))
    found: Row = {"boxes_per_pass": len(wanted) / FEW}
    for precision in _precisions(arguments):
        detector = _detector(model, weights, arguments, arguments.device, precision)
        seen = detector.encode(image)
        detector.chunk = FEW
        samples = detector.sample(seen, FEW, 3)
        again = detector.sample(detector.encode(image), FEW, 3)
        detector.chunk = 1
        single = detector.sample(seen, FEW, 3)
        there, once_more = (objectness_gradients(detector.deterministic_pass(seen)) for _ in range(2))
        found[precision] = compared(samples, wanted) | {
            "repeats": _same(samples, again),
            "one_by_one": compared(single, samples) | {"equal": _same(single, samples)},
            "gradient_relative": [
                float((a.cpu() - b).norm() / b.norm().clamp_min(1e-12))
                for a, b in zip(there, gradients, strict=True)
            ],
            "gradient_repeats": all(map(torch.equal, there, once_more)),
            "nan_found": _finds_nan(detector, image),
        }
        if precision in ("float32", "tf32"):
            reference = StochasticDetector(detector.model, detector.settings, "", "reference")
            reference.chunk = 1  # convolutions of several images round differently
            found[precision]["complete_passes_equal"] = equals_complete_passes(
                reference, detector.model, image, 0.0, 1.0
            )[0]
    return found


def compared(some: StochasticSamples, others: StochasticSamples) -> Row:
    """How the boxes of the same passes agree: the share that is "matched" and the differences of scores of those."""
    apart: list[float] = []
    boxes = 0
    for number in range(some.passes):
        (a, p), (b, q) = (
            (s.boxes[s.pass_index == number], s.probabilities[s.pass_index == number]) for s in (some, others)
        )
        boxes += max(len(a), len(b))
        overlap = box_iou(torch.from_numpy(a), torch.from_numpy(b)).numpy()
        overlap *= p[:, 1:].argmax(axis=1)[:, None] == q[:, 1:].argmax(axis=1)[None]
        rows, columns = linear_sum_assignment(-overlap)
        good = overlap[rows, columns] >= SAME_PLACE
        apart += np.abs(p[rows[good]] - q[columns[good]]).max(axis=1, initial=0.0).tolist()
    p50, p99, most = (float(np.quantile(apart, at)) if apart else None for at in (0.5, 0.99, 1.0))
    matched = len(apart) / boxes if boxes else 1.0
    return {"matched": matched, "score_p50": p50, "score_p99": p99, "score_most": most}


def speed(arguments: argparse.Namespace) -> Row:
    """Per precision: how long an image takes and what it costs."""
    (model,) = arguments.models
    weights, images = _weights(model, arguments)
    return {
        precision: _costs(model, weights, images, arguments, precision)
        for precision in _precisions(arguments)
    }


def _costs(
    model: str, weights: str, images: list[NDArray[np.uint8]], arguments: argparse.Namespace, precision: str
) -> Row:
    detector = _detector(model, weights, arguments, arguments.device, precision)
    device, passes, rounds = detector.device, arguments.passes, arguments.rounds
    asked = LocalizationSettings()
    features = detector.encode(images[0])

    def whole(image: NDArray[np.uint8]) -> None:
        detector.sample(detector.encode(image), passes, 1)

    def localized() -> None:
        features._derived.pop("head_maps", None)  # the maps without dropout are part of the cost
        localize(detector.deterministic_pass(features, least_score=asked.decision_threshold), asked)

    for _ in range(2):  # the first calls choose algorithms
        published_pass(detector.model, detector.settings, images[0])
        whole(images[0])
    _reset_peak(device)
    found: Row = {
        "encode": _timed(lambda: detector.encode(images[0]), rounds, device),
        "passes": _timed(lambda: detector.sample(features, passes, 1), rounds, device),
        "dil": _timed(localized, rounds, device),
    }
    pairs = []
    for number in range(max(1, rounds // 10)):
        image = images[number % len(images)]
        complete = _milliseconds(lambda: published_pass(detector.model, detector.settings, image), device)  # noqa: B023
        pairs.append((complete * passes, _milliseconds(lambda: whole(image), device)))  # noqa: B023
    found["complete_passes_ms"] = median(complete for complete, _ in pairs)
    found["ratio"] = median(complete / engine for complete, engine in pairs)

    settings = PerceptionSettings(**detector.settings.model_dump() | {"weights": weights})
    perception = Perception(settings, detector)
    perception.warm_up()
    digests = {perception.assess(images[0]).digest for _ in range(3)}
    found["repeats"] = len(digests) == 1
    stages: dict[str, list[float]] = {}
    turn = itertools.cycle(images)

    def assess() -> None:
        for stage, ms in perception.assess(next(turn)).timings.items():
            stages.setdefault(stage, []).append(ms)

    found["assessment"] = _timed(assess, rounds, device, most=0)
    found["stages"] = {stage: median(times) for stage, times in stages.items()}
    found["images_per_s"] = 1e3 / found["assessment"]["p50"]
    found["shortage"] = perception.shortage
    if device.type == "cuda":
        found["peak_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
        found["waits"] = waits(lambda: whole(images[0]))
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            whole(images[0])
            torch.cuda.synchronize(device)
        found |= on_the_gpu(recorded.events() or ())
    return found


def graphs(arguments: argparse.Namespace) -> Row:
    """Per precision: milliseconds of stages without and with CUDA graphs, and whether both compute the same bytes."""
    (model,) = arguments.models
    weights, images = _weights(model, arguments)
    return {
        precision: _with_graphs(model, weights, images, arguments, precision)
        for precision in _precisions(arguments)
    }


def _with_graphs(
    model: str, weights: str, images: list[NDArray[np.uint8]], arguments: argparse.Namespace, precision: str
) -> Row:
    plain = _detector(model, weights, arguments, arguments.device, precision)
    graphed = plain.with_settings(plain.settings.model_copy(update={"graphs": True}))
    device, passes = plain.device, arguments.passes
    samples = [
        [one.sample(one.encode(image), passes, seed) for seed in (1, 2, 1) for image in images]
        for one in (plain, graphed)
    ]
    found: Row = {"same_bytes": all(map(_same, *samples))}
    assessing = []
    for one in (plain, graphed):
        settings = PerceptionSettings(**one.settings.model_dump() | {"weights": weights})
        perception = Perception(settings, one)
        perception.warm_up()
        assessing.append(perception)
    for name, one, perception in zip(("without", "with"), (plain, graphed), assessing, strict=True):
        features = one.encode(images[0])
        found[name] = {
            "encode": _timed(partial(one.encode, images[0]), arguments.rounds, device)["p50"],
            "passes": _timed(partial(one.sample, features, passes, 1), arguments.rounds, device)["p50"],
            "assessment": _timed(partial(perception.assess, images[0]), arguments.rounds, device)["p50"],
        }
    if device.type == "cuda":
        found["memory_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
    found["same_assessments"] = all(
        len({perception.assess(image).digest for perception in assessing}) == 1 for image in images
    )
    return found | {"ungraphed": assessing[1].graph_problems}


def compiled(arguments: argparse.Namespace) -> Row:
    """Per precision: the backbone by torch.compile, which takes the compiler most of a minute."""
    (model,) = arguments.models
    weights, images = _weights(model, arguments)
    return {
        precision: _compiled(
            _detector(model, weights, arguments, arguments.device, precision), images[0], arguments.rounds
        )
        for precision in _precisions(arguments)
    }


def _compiled(detector: StochasticDetector, image: NDArray[np.uint8], rounds: int) -> Row:
    """Start-up, milliseconds and bits of the backbone by torch.compile, or why there is none."""
    pixels = network_input(detector.model.transform, image, detector.device).tensors
    backbone = detector.model.backbone
    try:
        with torch.no_grad(), detector.products():
            started = time.monotonic()
            by_compiler = torch.compile(backbone, mode="reduce-overhead")
            made = [m.clone() for m in by_compiler(pixels).values()]
            start = time.monotonic() - started
            plain = list(backbone(pixels).values())
            return {
                "start_s": start,
                "ms": _timed(lambda: by_compiler(pixels), rounds, detector.device)["p50"],
                "plain_ms": _timed(lambda: backbone(pixels), rounds, detector.device)["p50"],
                "same_bytes": all(map(torch.equal, made, plain)),
            }
    except Exception as error:  # noqa: BLE001  # whatever a compiler or its absence raises
        return {"none": str(error).strip().split("\n", 1)[0][:200]}


def on_the_gpu(events: Iterable[Any]) -> Row:
    """Number and milliseconds of the kernels and copies among ``events`` of a profile, and the eight that take longest.

    {} where there are none: the driver does not let everybody profile.
    """
    times: dict[str, float] = {}
    count = 0
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name] = times.get(event.name, 0.0) + event.time_range.elapsed_us() / 1e3
            count += 1
    if not count:
        return {}
    longest = sorted(times.items(), key=lambda item: -item[1])[:8]
    return {"kernels": count, "gpu_ms": sum(times.values()), "longest": longest}


PARTS: dict[str, Callable[[argparse.Namespace], Row]] = {
    "environment": environment,
    "kernels": kernels,
    "agreement": agreement,
    "speed": speed,
    "graphs": graphs,
    "compiled": compiled,
}
OF_A_MODEL = ("agreement", "speed", "graphs", "compiled")


def _precisions(arguments: argparse.Namespace) -> list[str]:
    device = resolve_device(arguments.device)
    if device.type == "cpu":
        there = ["float32", "bfloat16"]
    else:
        ampere = torch.cuda.get_device_capability(device) >= (8, 0)
        there = ["float32", *(["tf32", "bfloat16"] if ampere else []), "float16"]
    chosen = [one for one in arguments.precisions or there if one in there]
    if not chosen:
        raise InvalidInput(f"precisions {arguments.precisions}, expected some of {there} on {device}")
    return chosen


def _weights(model: str, arguments: argparse.Namespace) -> tuple[str, list[NDArray[np.uint8]]]:
    """The weights file of ``model``, "" for the packaged one, and the images that are measured on."""
    images = pictures()
    if packaged_weights(model):
        return "", images
    file = arguments.result.with_name(f"{model}.safetensors")
    if not file.exists():
        settings = DetectorSettings(
            model=model, min_size=arguments.min_size, passes=arguments.passes, device="cpu"
        )
        save_weights(calibrated_model(settings, images, 0), file, {"model": model})
    return str(file), images


def _detector(
    model: str, weights: str, arguments: argparse.Namespace, device: str, precision: str
) -> StochasticDetector:
    values = {
        "model": model,
        "weights": weights,
        "min_size": arguments.min_size,
        "passes": arguments.passes,
        "device": device,
        "precision": precision,
        "threads": 0,
    }
    return load_detector(DetectorSettings(**values))


def _finds_nan(detector: StochasticDetector, image: NDArray[np.uint8]) -> bool:
    """Whether NaN in the features is found, and the device computes on afterwards."""
    features = detector.encode(image)
    broken = replace(features, maps=tuple(m * float("nan") for m in features.maps), _derived={})
    try:
        detector.sample(broken, 2, 1)
    except NonFiniteOutput:
        detector.sample(features, 2, 1)
        return True
    return False


def _same(one: StochasticSamples, other: StochasticSamples) -> bool:
    names = ("boxes", "probabilities", "pass_index")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _milliseconds(action: Callable[[], object], device: torch.device) -> float:
    """How long ``action`` takes until everything that it gave to the device is done."""
    started = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - started) * 1e3


def _timed(
    action: Callable[[], object], rounds: int, device: torch.device, most: int = 5
) -> dict[str, float]:
    """Quantiles of the milliseconds of ``rounds`` calls of ``action``, after ``most`` calls that do not count."""
    for _ in range(min(most, rounds)):
        _milliseconds(action, device)
    times = [_milliseconds(action, device) for _ in range(rounds)]
    return {f"p{round(100 * at)}": float(np.quantile(times, at)) for at in (0.5, 0.95, 0.99)}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
