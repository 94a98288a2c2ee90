# SPDX-License-Identifier: Apache-2.0
"""The pictures of the core's tests are those that test/laptops/make draws."""

import subprocess

import cv2
import numpy as np
import pytest

from sticker_uq.io.coco import read_coco
from test.helpers.laptops import FOLDER


def test_the_pictures_of_the_core_are_those_of_the_renderer(tmp_path):
    subprocess.run([FOLDER / "make", tmp_path], check=True, stdout=subprocess.DEVNULL)
    names = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    for name in names:
        kept, drawn = read_coco(FOLDER / name), read_coco(tmp_path / name)
        assert [item.path.name for item in kept] == [item.path.name for item in drawn]
        for ours, theirs in zip(kept, drawn, strict=True):
            np.testing.assert_array_equal(ours.labels, theirs.labels)
            np.testing.assert_allclose(ours.boxes, theirs.boxes, atol=1)
            images = [cv2.imread(str(item.path)).astype(np.float32) for item in (ours, theirs)]
            assert images[0].mean() == pytest.approx(images[1].mean(), abs=0.5)
            assert np.abs(images[0] - images[1]).mean() < 1, "of another renderer: draw them anew"
