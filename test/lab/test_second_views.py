# SPDX-License-Identifier: Apache-2.0
"""Second views of rendered laptops, for pictures of any shape; what they show is tested with their benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from sticker_uq.gate.box_overlap import as_box, iou
from sticker_uq.gate.second_view import Places
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.lab.second_views import turn_map, turned


@pytest.mark.parametrize("size", [(320, 240), (480, 240), (240, 320)])
def test_the_map_of_a_turn_finds_every_object_again(size: tuple[int, int]) -> None:
    spec = sample_scene(3, stickers=4)
    before, after = render(spec, size), render(turned(spec, 10.0), size)
    places = Places.of(turn_map(spec, -10.0, size))
    assert before.ids.tolist() == after.ids.tolist()
    assert not np.allclose(before.boxes, after.boxes, atol=2.0)
    for then, now in zip(before.boxes, after.boxes, strict=True):
        centre = (then[:2] + then[2:]) / 2
        found = as_box(now)
        moved = places.in_first(found)
        assert np.allclose(
            centre, ((moved[0] + moved[2]) / 2, (moved[1] + moved[3]) / 2), atol=0.02 * size[0]
        )
        assert iou(moved, as_box(then)) > 0.5
