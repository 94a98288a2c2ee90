# SPDX-License-Identifier: Apache-2.0
"""Close-ups show every object where they say, and change nothing else."""

import math
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.close_ups import LEARNED_ZOOM, ZOOM, close_ups, look_closely
from sticker_uq.plain import to_plain
from sticker_uq.scene import Detections, ObjectClass, Status
from sticker_uq.testing.scenes import object_at
from test.helpers.laptops import laptop
from test.helpers.models import picture, small_weights
from test.perception.test_pipeline import perception


def test_what_may_be_a_sticker_is_looked_at_and_nothing_else_changes():
    closely, once = perception().assess(picture()), perception(close_ups=False).assess(picture())
    looked = [0.0 <= o.close_up <= 1.0 for o in closely.objects]
    assert looked == [o.over_all_passes[ObjectClass.STICKER] >= 0.02 for o in closely.objects]
    assert any(looked)
    assert all(math.isnan(o.close_up) for o in once.objects)
    same = [to_plain(scene.objects, leave_out=("close_up", "label")) for scene in (closely, once)]
    assert same[0] == same[1]
    bare = perception().warm_up()
    assert (bare.objects, "close_ups" in bare.timings) == ((), False)


def test_weights_for_close_ups_beside_the_weights_look_at_them_and_at_nothing_else(tmp_path):
    small = small_weights(tmp_path)
    own = Perception(PerceptionSettings(weights=str(small), passes=5))
    beside = tmp_path / "small_close_ups.safetensors"
    shutil.copy(small, beside)
    same = Perception(own.settings)
    (tmp_path / "other").mkdir()
    small_weights(tmp_path / "other", 352).replace(beside)
    other = Perception(own.settings)
    image = laptop(size=(320, 240))
    scenes = [one.assess(image) for one in (own, same, other)]
    looks = [[o.close_up for o in scene.objects] for scene in scenes]
    assert looks[0] == pytest.approx(looks[1], nan_ok=True)
    assert looks[0] != pytest.approx(looks[2], nan_ok=True)
    assert [one._zoom for one in (own, same, other)] == [ZOOM, LEARNED_ZOOM, LEARNED_ZOOM]
    plain = [to_plain(scene.objects, leave_out=("close_up", "label")) for scene in scenes]
    assert plain[0] == plain[1] == plain[2]
    # what the close-ups saw is part of what an assessment is known by
    assert len({one.settings_hash for one in (own, same, other)}) == 3


def test_close_ups_that_memory_does_not_suffice_for_fail_and_close_the_gate(tmp_path, monkeypatch):
    small = small_weights(tmp_path)
    small_weights(tmp_path, close_ups=True)
    seeing = Perception(PerceptionSettings(weights=str(small), passes=5))

    def exhausted(_: object) -> Detections:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(seeing._closely, "detect_in", exhausted)
    image = laptop(size=(320, 240))
    for failed in (seeing.warm_up(), seeing.assess(image)):
        assert failed.status is Status.FAILED
        assert "does not suffice" in failed.status_text


class SeesStickers:
    """A detector that gives every place of a close-up ``score`` as a sticker."""

    def __init__(self, score: float) -> None:
        self.score = score

    def detect_in(self, image: np.ndarray) -> Detections:
        height, width = image.shape[:2]
        boxes = np.array(
            [[x, y, x + 30, y + 30] for x in range(0, width, 6) for y in range(0, height, 6)], np.float32
        )
        return Detections(boxes, np.tile(np.float32([1 - self.score, 0, self.score]), (len(boxes), 1)))


@pytest.mark.parametrize(
    ("vector", "score", "seen"),
    [
        ((0.8, 0.0, 0.2), 0.9, ObjectClass.STICKER),
        ((0.8, 0.0, 0.2), 0.7, ObjectClass.BACKGROUND),
        ((0.4, 0.39, 0.21), 1.0, ObjectClass.BACKGROUND),  # sooner a logo
        ((0.0, 0.8, 0.2), 0.9, ObjectClass.LOGO),
        ((0.2, 0.0, 0.8), 0.0, ObjectClass.STICKER),
    ],
)
def test_passes_and_close_up_tell_together_whether_background_is_a_sticker(vector, score, seen):
    label = ObjectClass(int(np.argmax(vector)))
    one = object_at(label=label, probabilities=vector, box=(40, 40, 60, 60))
    (looked,) = look_closely(SeesStickers(score), np.zeros((480, 640, 3), np.uint8), (one,))
    assert (looked.label, looked.close_up) == (seen, pytest.approx(score))
    assert looked.probabilities.tolist() == one.probabilities.tolist()


shares = st.tuples(*[st.floats(0.001, 1)] * 3).map(lambda v: np.array(v, np.float32) / sum(v))


@given(shares, st.floats(0, 1, width=32), st.integers(4, 20))
def test_what_is_sooner_a_logo_never_becomes_a_sticker_and_a_sticker_stays_one(vector, score, passes):
    label = ObjectClass(int(np.argmax(vector)))
    rate = passes / 20
    one = object_at((40, 40, 60, 60), label, tuple(vector), passes=passes, detection_rate=rate)
    (looked,) = look_closely(SeesStickers(score), np.zeros((480, 640, 3), np.uint8), (one,))
    if looked.label is ObjectClass.STICKER:
        assert vector[ObjectClass.STICKER] >= vector[ObjectClass.LOGO]
    if ObjectClass.BACKGROUND not in (label, looked.label):
        assert looked.label is label


def gradient(width: int, height: int) -> np.ndarray:
    """A picture whose channels are the place of a pixel."""
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    return np.stack([across, down, np.full_like(across, 9)], axis=2).astype(np.uint8)


@pytest.mark.parametrize(
    ("count", "pictures", "side", "zoom"), [(1, 1, 14, 1.5), (16, 1, 18, 1.25), (17, 2, 18, 1.25)]
)
def test_a_box_lies_in_its_close_up_enlarged_and_mirrored(count, pictures, side, zoom):
    box = np.array([120.0, 60.0, 120.0 + side, 60.0 + side], np.float32)
    image = gradient(240, 180)
    made = list(close_ups(image, np.repeat(box[None], count, axis=0)))
    assert [len(parts) for _, parts in made] == [*[16] * (pictures - 1), count - 16 * (pictures - 1)]
    for shown, parts in made:
        assert shown.shape == image.shape
        for x1, y1, x2, y2 in np.concatenate([part.project_boxes(box[None]) for part in parts]):
            assert (x2 - x1, y2 - y1) == pytest.approx((zoom * side, zoom * side), rel=0.04)
            inside = shown[round(y1) + 1 : round(y2) - 1, round(x1) + 1 : round(x2) - 1].astype(float)
            assert inside[:, 0, 0] == pytest.approx(box[2], abs=2)  # its right edge is on the left
            assert inside[:, -1, 0] == pytest.approx(box[0], abs=2)
            assert inside[0, :, 1] == pytest.approx(box[1], abs=2)
            assert inside[-1, :, 1] == pytest.approx(box[3], abs=2)


sides = st.integers(1, 300)


@given(sides, sides, st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4), min_size=1, max_size=20))
def test_every_box_is_whole_in_a_cell_of_its_own(width, height, corners):
    a, b, c, d = np.array(corners, np.float32).T
    boxes = np.stack([np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)], 1)
    boxes *= np.array([width, height] * 2, np.float32)
    made = list(close_ups(np.zeros((height, width, 3), np.uint8), boxes))
    assert sum(len(parts) for _, parts in made) == len(boxes)
    wide, high = max(width // 4, 1), max(height // 4, 1)
    left = iter(boxes)
    for shown, parts in made:
        assert shown.shape == (height, width, 3)
        for number, part in enumerate(parts):
            row, column = divmod(number, 4)
            ((x1, y1, x2, y2),) = part.project_boxes(next(left)[None]).tolist()
            assert column * wide - 1 <= x1 <= x2 <= (column + 1) * wide + 1
            assert row * high - 1 <= y1 <= y2 <= (row + 1) * high + 1
