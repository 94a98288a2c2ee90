# SPDX-License-Identifier: Apache-2.0
"""The camera model against OpenCV and against itself."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.geometry import Camera
from sticker_uq.scene import InvalidInput

SIZE = (640, 480)
K = np.array([[600.0, 0.0, 310.0], [0.0, 590.0, 250.0], [0.0, 0.0, 1.0]])
LENSES = {
    "none": ("", ()),
    "plumb_bob": ("plumb_bob", (-0.28, 0.09, 0.001, -0.0008, -0.02)),
    "rational": ("rational_polynomial", (0.2, -0.3, 0.001, 0.0005, 0.05, 0.5, -0.2, 0.03)),
    "thin prism": ("rational_polynomial", (0.2, -0.3, 0.0, 0.0, 0.05, 0.5, -0.2, 0.0, 0.01, 0.0, -0.01, 0.0)),
    "fisheye": ("equidistant", (-0.02, 0.01, -0.005, 0.001)),
}


def camera(name: str) -> Camera:
    model, distortion = LENSES[name]
    return Camera(SIZE, K, model, distortion)


@pytest.mark.parametrize("name", LENSES)
def test_a_point_appears_where_opencv_draws_it(name):
    points = np.random.default_rng(1).uniform([-0.5, -0.4, 1.0], [0.5, 0.4, 3.0], (50, 3))
    model, distortion = LENSES[name]
    if model == "equidistant":
        expected, _ = cv2.fisheye.projectPoints(
            points[None], np.zeros(3), np.zeros(3), K, np.array(distortion)
        )
    else:
        coefficients = np.array(distortion) if distortion else None
        expected, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), K, coefficients)
    np.testing.assert_allclose(camera(name).project(points), expected.reshape(-1, 2), atol=1e-9)


@pytest.mark.parametrize("name", LENSES)
@given(x=st.floats(0, 640), y=st.floats(0, 480))
def test_a_ray_leads_back_to_its_pixel(name, x, y):
    lens = camera(name)
    rays, _ = lens.rays(np.array([[x, y]]))
    np.testing.assert_allclose(lens.project(np.column_stack([rays, [1.0]])), [[x, y]], atol=1e-6)


@pytest.mark.parametrize("name", LENSES)
def test_no_pixel_has_no_ray(name):
    rays, slopes = camera(name).rays(np.zeros((0, 2)))
    assert (rays.shape, slopes.shape) == ((0, 2), (0, 2, 2))
    assert camera(name).project(np.zeros((0, 3))).shape == (0, 2)


@pytest.mark.parametrize("name", LENSES)
def test_the_derivative_is_that_of_the_ray(name):
    lens, pixel, h = camera(name), np.array([[520.0, 90.0]]), 1e-3
    _, slope = lens.rays(pixel)
    for axis in (0, 1):
        offset = np.eye(2)[axis] * h
        numeric = (lens.rays(pixel + offset)[0] - lens.rays(pixel - offset)[0]) / (2 * h)
        np.testing.assert_allclose(slope[0, :, axis], numeric[0], rtol=1e-4, atol=1e-9)


def test_a_pixel_beyond_the_lens_model_is_refused():
    folding = Camera(SIZE, K, "plumb_bob", (-0.5, 0.0, 0.0, 0.0))  # farthest radius 0.544 focal lengths
    folding.rays(np.array([[310.0 + 600 * 0.4, 250.0]]))
    with pytest.raises(InvalidInput, match="cannot be inverted at pixel 670, 250"):
        folding.rays(np.array([[310.0, 250.0], [670.0, 250.0]]))
    with pytest.raises(InvalidInput, match="cannot be inverted at a pixel that is NaN"):
        camera("plumb_bob").rays(np.array([[float("nan"), 10.0]]))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"matrix": np.zeros((3, 3))}, "not calibrated"),
        ({"matrix": np.full((3, 3), np.nan)}, "not calibrated"),
        ({"matrix": np.eye(2)}, "not calibrated"),
        ({"image_size": (0, 480)}, "the size 0 x 480"),
        ({"model": "kannala"}, "'kannala' is unknown"),
        ({"model": "plumb_bob", "distortion": (0.1,)}, "has 1 coefficients, expected 4 or 5"),
        ({"model": "equidistant", "distortion": (0.1, 0.0, float("inf"), 0.0)}, "expected 4 finite ones"),
        ({"distortion": (0.1, 0.0, 0.0, 0.0)}, "expected 0 finite ones"),
    ],
)
def test_what_is_no_camera_is_refused(values, text):
    with pytest.raises(InvalidInput, match=text):
        Camera(**{"image_size": SIZE, "matrix": K, **values})


def test_another_calibration_has_another_fingerprint():
    assert len({camera(name).fingerprint for name in LENSES}) == len(LENSES)
    assert camera("none").fingerprint == Camera(SIZE, K.copy()).fingerprint
