# SPDX-License-Identifier: Apache-2.0
"""Suppression of many groups at once is torchvision's of each, and the choice before it knows no chance."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra import numpy as hnp
from torch import Tensor
from torchvision.models.detection._utils import BoxCoder
from torchvision.ops import nms

from sticker_uq.detection.kernels import fast_faster_rcnn as batched_nms
from sticker_uq.detection.kernels.fast_faster_rcnn import ROUNDS, greedy_nms
from sticker_uq.detection.selection import decode_deltas, top_ranked
from test.helpers.simulated_gpu import GPU, simulated_gpu

CORNERS = st.one_of(st.integers(0, 8).map(float), st.floats(-4, 12, width=32))
"""A coarse grid makes equal boxes, boxes that touch and IoUs that are a threshold exactly."""
THRESHOLDS = st.one_of(st.sampled_from([0.2, 0.25, 0.5, 0.6, 0.7, 1 / 3]), st.floats(0.05, 0.95))


@st.composite
def groups(draw: Any) -> tuple[Tensor, Tensor]:
    """Boxes (G, K, 4) by falling score, sides down to 0, and which of them take part."""
    shape = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    corners = draw(hnp.arrays(np.float32, (*shape, 2, 2), elements=CORNERS))
    corners.sort(axis=2)
    return torch.from_numpy(corners.reshape(*shape, 4)), torch.from_numpy(draw(hnp.arrays(np.bool_, shape)))


def one_by_one(boxes: Tensor, usable: Tensor, threshold: float) -> Tensor:
    """torchvision's suppression of each group."""
    kept = torch.zeros_like(usable)
    for own, part, result in zip(boxes, usable, kept, strict=True):
        rows = part.nonzero()[:, 0]
        scores = torch.arange(len(rows), 0, -1, dtype=torch.float32)
        result[rows[nms(own[rows], scores, threshold)]] = True
    return kept


@given(groups(), THRESHOLDS)
def test_every_group_is_suppressed_as_torchvision_does(given, threshold):
    boxes, usable = given
    assert torch.equal(greedy_nms(boxes, usable, threshold), one_by_one(boxes, usable, threshold))


def crowd(groups: int, count: int) -> Tensor:
    """Boxes (groups, count, 4) of which most overlap many."""
    generator = torch.Generator().manual_seed(3)
    low = torch.rand((groups, count, 2), generator=generator) * 60
    return torch.cat([low, low + 10 + 30 * torch.rand((groups, count, 2), generator=generator)], dim=2)


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.7])
def test_a_crowd_in_parts(threshold, monkeypatch):
    boxes = crowd(5, 300)
    usable = torch.rand(boxes.shape[:2], generator=torch.Generator().manual_seed(4)) < 0.9
    monkeypatch.setattr(batched_nms, "_PAIRS_AT_ONCE", 2 * 300 * 300)
    kept = greedy_nms(boxes, usable, threshold)
    assert torch.equal(kept, one_by_one(boxes, usable, threshold))
    assert 0 < kept.sum() < usable.sum()


def chain(count: int) -> Tensor:
    """Boxes (1, count, 4) each of which overlaps the next: every second is kept, the last one known after ``count`` rounds."""
    left = torch.arange(count) * 4.0
    return torch.stack([left, torch.zeros(count), left + 10, torch.full((count,), 10.0)], dim=1)[None]


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_a_chain_is_followed_to_its_end_with_a_wait_for_each_batch_of_rounds(rounds):
    boxes = chain(rounds * ROUNDS)
    with simulated_gpu() as simulation:
        there, usable = boxes.to(GPU), torch.ones(boxes.shape[:2], dtype=torch.bool, device=GPU)
        simulation.waits.clear()
        kept = greedy_nms(there, usable, 0.4)
        waits = simulation.waits.total()
        assert torch.equal(kept.cpu(), torch.arange(boxes.shape[1])[None] % 2 == 0)
    assert waits == rounds


@given(
    hnp.arrays(
        np.float32,
        (3, 7),
        elements=st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0]), st.floats(-9, 9, width=32)),
    )
)
def test_ranked_is_a_stable_order(values):
    scores = torch.from_numpy(values)
    wanted = scores.argsort(dim=1, descending=True, stable=True)
    assert torch.equal(top_ranked(scores, 7), wanted)
    assert torch.equal(top_ranked(scores, 4), wanted[:, :4])
    half = scores.to(torch.bfloat16)
    assert torch.equal(top_ranked(half, 7), half.argsort(dim=1, descending=True, stable=True))


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 1.0), (10.0, 10.0, 5.0, 5.0)])
@given(hnp.arrays(np.float32, (9, 8), elements=st.floats(-30, 30, width=32)))
def test_boxes_are_decoded_as_torchvision_does(weights, values):
    coder, rows = BoxCoder(weights), torch.from_numpy(values)
    deltas, anchors = rows[:, :4].contiguous(), rows[:, 4:].contiguous()
    assert torch.equal(decode_deltas(coder, deltas, anchors), coder.decode_single(deltas, anchors))
