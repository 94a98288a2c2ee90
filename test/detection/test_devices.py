# SPDX-License-Identifier: Apache-2.0
"""What a GPU computes is what a processor computes: on the simulated one, and on a real one where there is one.

On a machine with a GPU and without ROS: ``python -m pytest --noconftest test/detection/test_devices.py``.
"""

import copy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.gpu_parts import compared
from benchmarks.mc_dropout import equals_complete_passes
from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.dropout import CounterDropout
from sticker_uq.detection.kernels.fast_faster_rcnn import greedy_nms
from sticker_uq.detection.selection import top_ranked
from sticker_uq.perception.dil.dil import objectness_gradients
from test.detection.test_passes import assert_matches, one_pass, rows_of, same
from test.helpers.models import FAMILIES, MODEL_NAMES, picture, tiny_detector, tiny_model
from test.helpers.simulated_gpu import OnGpu, simulated_gpu

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no NVIDIA GPU")
# the tests of one model follow each other, for which it is brought to the device once
NAMES = MODEL_NAMES if torch.cuda.is_available() else FAMILIES
each_model = pytest.mark.parametrize("name", NAMES, scope="module")
each_gpu = pytest.mark.parametrize(
    "kind", ["simulated", pytest.param("real", marks=needs_gpu)], scope="module"
)
_PX, _PROBABILITY = 0.05, 2e-3
"""The processor has convolutions of its own; random weights enlarge what is rounded differently."""
_MATCHED = 0.98
"""Share of boxes that a real GPU has to see too: one at the threshold may be on its other side."""


def test_freed_memory_is_used_again_without_new_pages():
    told = """
import resource, torch
from sticker_uq.detection.kernels.devices import keep_freed_memory
def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(12_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
pages()
print(pages())
keep_freed_memory()
pages()
print(pages())
"""
    command = [sys.executable, "-c", told]
    runs = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3))
    pages = (map(int, run.stdout.split()) for run in runs)
    # where a mapping lies above the heap, as by chance it does, it cannot grow, and glibc maps the memory anew
    assert any(kept < 0.1 * given_back for given_back, kept in pages)


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc"
)
def test_what_a_training_freed_is_returned():
    told = """
import torch
from sticker_uq.detection.kernels.devices import keep_freed_memory, return_freed_memory
def held():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS:"))
keep_freed_memory()
before = held()
parts = [torch.ones(3_000_000) for _ in range(20)]
last = torch.ones(1_000)
del parts
kept = held()
return_freed_memory()
print(kept - before, held() - before)
"""
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    kept, returned = map(int, run.stdout.split())
    assert kept > 200_000, "kB, else there is nothing to return"
    assert returned < 0.1 * kept


@lru_cache(maxsize=1)
def brought_there(name: str, kind: str = "simulated", site: str = "in") -> StochasticDetector:
    processor = tiny_detector(name, dropout_site=site)
    settings = processor.settings.model_copy(update={"device": "cuda"})
    return StochasticDetector(copy.deepcopy(tiny_model(name)), settings, processor.weights_hash)


def gpu(kind: str) -> AbstractContextManager[object]:
    """The GPU exists inside the block."""
    return simulated_gpu() if kind == "simulated" else nullcontext()


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    brought_there.cache_clear()


@each_gpu
def test_masks_order_and_suppression_are_the_same_bits(kind):
    shapes = ((1, 24, 1, 1), (1, 7, 3, 5), (3, 16, 9, 12))

    def masks(device: torch.device) -> list[torch.Tensor]:
        dropout = CounterDropout(0.2, 5, range(3), device)
        return [dropout.masks(torch.empty(shape, device=device)).cpu() for shape in shapes]

    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 500, generator=generator).sigmoid()
    scores[:, ::3] = scores[:, :1]
    low = torch.rand(3, 100, 2, generator=generator) * 100
    boxes = torch.cat([low, low + torch.rand(3, 100, 2, generator=generator) * 60], dim=-1)
    usable = torch.rand(3, 100, generator=generator) > 0.1
    wanted = masks(torch.device("cpu")), top_ranked(scores, 50), greedy_nms(boxes, usable, 0.5)
    with gpu(kind):
        there = torch.device("cuda:0")
        found = masks(there)
        order = top_ranked(scores.to(there), 50).cpu()
        kept = greedy_nms(boxes.to(there), usable.to(there), 0.5).cpu()
    assert all(map(torch.equal, found, wanted[0]))
    assert torch.equal(order, wanted[1])
    assert torch.equal(kept, wanted[2])


@each_model
@each_gpu
def test_boxes_and_vectors_are_those_of_the_processor_and_repeat(name, kind):
    for site in ("in", "out") if name == "ssd300_vgg16" else ("in",):
        processor = tiny_detector(name, dropout_site=site)
        there = processor.encode(picture())
        wanted, plain = processor.sample(there, 2, seed=7), processor.deterministic_pass(there)
        with gpu(kind):
            detector = brought_there(name, kind, site)
            features = detector.encode(picture())
            found, deterministic = detector.sample(features, 2, seed=7), detector.deterministic_pass(features)
            tensors = (*features.maps, *deterministic.maps, *deterministic.objectness)
            assert all(t.is_cuda and isinstance(t, OnGpu) is (kind == "simulated") for t in tensors)
            if kind == "real":
                assert same(found, detector.sample(detector.encode(picture()), 2, seed=7))
        assert type(found.boxes) is np.ndarray
        assert len(found) > 0
        if kind == "real":
            agreement = compared(found, wanted)
            assert agreement["matched"] >= _MATCHED, agreement
            assert agreement["score_p99"] <= _PROBABILITY, agreement
            continue
        for number in range(2):
            assert_matches(one_pass(found, number), one_pass(wanted, number), _PX, _PROBABILITY)
        assert_matches(rows_of(deterministic.detections), rows_of(plain.detections), _PX, _PROBABILITY)


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large"], scope="module")
@each_gpu
def test_passes_of_the_reference_are_complete_passes_there_bit_for_bit(name, kind):
    """Also where a division by 255 is a multiplication: both sides of the comparison divide in the same place."""
    with gpu(kind) as simulation:
        there = brought_there(name, kind)
        reference = StochasticDetector(there.model, there.settings, "", "reference")
        reference.chunk = 1
        if simulation is not None:
            simulation.products.clear()
        assert equals_complete_passes(reference, there.model, picture(), 0.0, 1.0)[0]
        if simulation is not None:
            assert simulation.products == {("ieee", "ieee")}, "on both sides"


@each_model
@needs_gpu
def test_gradients_of_distinctive_localization_are_those_of_the_processor(name):
    """Not simulated: torch's autograd has a thread for each GPU and asks its driver for one."""
    processor = tiny_detector(name)
    wanted = objectness_gradients(processor.deterministic_pass(processor.encode(picture())))
    detector = brought_there(name, "real")
    found = objectness_gradients(detector.deterministic_pass(detector.encode(picture())))
    for there, here in zip(found, wanted, strict=True):
        assert float((there.cpu() - here).norm() / here.norm().clamp_min(1e-12)) < 1e-2
