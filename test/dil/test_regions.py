# SPDX-License-Identifier: Apache-2.0
"""Which anchors no predicted box explains, against asking every anchor of every box."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sticker_uq.detection import DeterministicPass, Features
from sticker_uq.dil.dil import EXPLAINED_IOU, EXPLAINED_PART, unexplained_objectness
from sticker_uq.scene import Detections, FloatArray

SIDE = 100


def explained(anchor: FloatArray, boxes: FloatArray) -> bool:
    for box in boxes:
        low, high = np.maximum(anchor[:2], box[:2]), np.minimum(anchor[2:], box[2:])
        shared = np.prod(np.maximum(high - low, 0))
        of_anchor, of_box = np.prod(anchor[2:] - anchor[:2]), np.prod(box[2:] - box[:2])
        if shared > EXPLAINED_IOU * (of_anchor + of_box - shared) or shared > EXPLAINED_PART * of_anchor:
            return True
    return False


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    anchors=st.sampled_from([1, 40, 300, 6000]),
    boxes=st.integers(0, 4),
    large=st.booleans(),
    steps=st.sampled_from([3, 1000]),
)
def test_the_strongest_unexplained_anchor_is_found_however_many_there_are(
    seed: int, anchors: int, boxes: int, large: bool, steps: int
) -> None:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, SIDE - 20, (anchors, 2))
    places = np.concatenate([corners, corners + rng.uniform(2, 20, (anchors, 2))], axis=1).astype(np.float32)
    values = rng.integers(0, steps, anchors).astype(np.float32) / steps  # with ties
    low = rng.uniform(0, 20 if large else SIDE - 30, (boxes, 2))
    predicted = np.concatenate([low, low + (75 if large else 15)], axis=1).astype(np.float32)
    features = Features((SIDE, SIDE), (SIDE, SIDE), (SIDE, SIDE), ())
    objectness = torch.from_numpy(values).view(1, 1, 1, -1)
    tensor = torch.from_numpy(places)
    nothing = Detections(np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32))
    deterministic = DeterministicPass(
        features, (), (objectness,), False, tensor, lambda rows: tensor[rows], nothing
    )
    found = unexplained_objectness(deterministic, predicted, 0.05)

    free = np.array([not explained(place, predicted) for place in places])
    assert found.objectness == (values[free].max() if free.any() else 0.0)
    assert (found.values >= 0.05).all()
    assert list(found.values) == sorted(found.values, reverse=True)
    for box, value in zip(found.boxes, found.values, strict=True):
        (row,) = np.flatnonzero((places == box).all(axis=1))
        assert free[row]
        assert values[row] == value
    if free.any() and values[free].max() >= 0.05:
        assert found.values[0] == values[free].max()
