# SPDX-License-Identifier: Apache-2.0
"""Distances: zero for the same, larger for worse, and equal to reference implementations where there are any."""

from functools import cache

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from scipy.linalg import sqrtm
from sklearn.covariance import ledoit_wolf

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.robustness import distances
from sticker_uq_lab.robustness.distances import (
    ComparedPicture,
    ImageDistances,
    feature_distances,
    frechet_distance,
    linkages,
    pair_distances,
    steerable_bands,
)

LAPTOP = render(sample_scene(3), size=(480, 360)).image
NAMES = ("mse", "psnr", "ssim", "cw_ssim")


def compare(source: np.ndarray, followup: np.ndarray) -> ImageDistances:
    return ComparedPicture(source).compare(followup)


def noisy(image: np.ndarray, sigma: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, sigma, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


@cache
def worse_and_worse() -> list[list[ImageDistances]]:
    blurred = [compare(LAPTOP, cv2.GaussianBlur(LAPTOP, (0, 0), s)) for s in (1, 3, 6)]
    return [blurred, [compare(LAPTOP, noisy(LAPTOP, s)) for s in (5, 15, 40)]]


def test_the_same_picture_is_at_distance_zero():
    same = compare(LAPTOP, LAPTOP.copy())
    assert (same.mse, same.psnr) == (0, float("inf"))
    assert [same.distance(name) for name in NAMES] == pytest.approx([0] * 4, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_every_distance_grows_with_blur_and_noise(name):
    for row in worse_and_worse():
        distances = [one.distance(name) for one in row]
        assert 0 < distances[0] < distances[1] < distances[2]


def test_mse_and_psnr_are_their_definitions():
    found = compare(LAPTOP, noisy(LAPTOP, 10))
    mse = np.mean((LAPTOP.astype(float) - noisy(LAPTOP, 10)) ** 2)
    assert found.mse == pytest.approx(mse)
    assert found.psnr == pytest.approx(20 * np.log10(255 / np.sqrt(mse)))
    assert found.distance("psnr") == pytest.approx(np.sqrt(mse) / 255)
    assert ImageDistances(255.0**2, 0.0, 0.0, 0.0).distance("mse") == 1


def test_cw_ssim_forgives_a_small_shift_that_ssim_does_not():
    found = compare(LAPTOP, np.roll(LAPTOP, 3, axis=1))
    assert 1 - found.cw_ssim < (1 - found.ssim) / 2
    other = compare(LAPTOP, render(sample_scene(5), size=(480, 360)).image)
    assert other.cw_ssim < found.cw_ssim - 0.2


def test_cw_ssim_has_the_scale_of_its_authors():
    """Their K is 0: a window of little contrast counts as any other, which a K of SSIM's size hides."""
    blurred = compare(LAPTOP, cv2.GaussianBlur(LAPTOP, (0, 0), 3))
    bands = [
        distances._bands(distances._brightness(p)) for p in (LAPTOP, cv2.GaussianBlur(LAPTOP, (0, 0), 3))
    ]
    own = []
    for one, other in zip(*bands, strict=True):
        windows = [sliding_window_view(b, (7, 7), axis=(1, 2)) for b in (one, other)]
        shared = np.abs((windows[0] * windows[1].conj()).sum(axis=(3, 4), dtype=complex))
        power = sum((np.abs(w) ** 2).sum(axis=(3, 4), dtype=float) for w in windows)
        own.append((2 * shared / power).mean())
    assert blurred.cw_ssim == pytest.approx(np.mean(own), abs=2e-3)
    even = np.full((240, 320, 3), 90, np.uint8)
    assert compare(even, even + 1).cw_ssim == pytest.approx(1, abs=1e-3)


def test_pictures_too_small_for_structure_are_refused():
    with pytest.raises(InvalidInput, match="32x48"):
        compare(LAPTOP, np.zeros((48, 32, 3), np.uint8))


@settings(max_examples=20)
@given(width=st.integers(64, 90), height=st.integers(64, 90), x=st.integers(-8, 8), y=st.integers(-8, 8))
def test_bands_answer_to_their_own_scale_and_orientation(width, height, x, y):
    """A grating passes one scale and its neighbours, in the orientation it has; a complex band of it has a constant amplitude."""
    if (x, y) == (0, 0):
        return
    rows, columns = np.mgrid[:height, :width]
    angle = np.arctan2(y / height, x / width) % np.pi
    grating = np.cos(2 * np.pi * (x * columns / width + y * rows / height))
    bands = steerable_bands(grating, 3, 6)
    energy = np.array([[np.abs(b).mean() for b in scale] for scale in bands])
    orientation = int(energy.sum(axis=0).argmax())
    off = np.abs((np.pi * orientation / 6 - angle + np.pi / 2) % np.pi - np.pi / 2)
    if energy.max() > 0.1:  # the coarsest gratings are left to the low-pass residual
        assert off <= np.pi / 12 + 1e-6
        strongest = bands[int(energy.sum(axis=1).argmax())][orientation]
        assert np.abs(strongest).std() < 1e-3 * np.abs(strongest).mean()


@pytest.mark.parametrize(("count", "dimensions"), [(40, 12), (30, 50), (25, 200)])
def test_frechet_distance_is_the_formula_on_shrunk_covariances(count, dimensions):
    rng = np.random.default_rng(count)
    one = rng.normal(size=(count, dimensions)) * rng.uniform(0.1, 3, dimensions)
    other = one[::-1] + rng.normal(0.1, 0.3, one.shape)
    c1, c2 = (ledoit_wolf(x - x.mean(axis=0), assume_centered=True)[0] for x in (one, other))
    expected = ((one.mean(axis=0) - other.mean(axis=0)) ** 2).sum()
    expected += np.trace(c1 + c2 - 2 * np.real(sqrtm(c1 @ c2)))
    assert frechet_distance(one, other) == pytest.approx(expected, rel=1e-6)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-8)


def test_linkages_are_their_definitions():
    one, other = np.array([[0.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 0.0], [5.0, 2.0]])
    found = linkages(one, other)
    assert set(found) == {"single", "complete", "average", "centroid"}
    assert found["single"] == 3
    assert found["complete"] == pytest.approx(np.hypot(5, 2))
    assert found["centroid"] == 4
    assert found["average"] == pytest.approx(np.mean([3, np.hypot(5, 2), np.hypot(3, 2), 5]))


def test_pairs_follow_their_source():
    source = np.array([[1.0, 0.0], [0.0, 1.0]])
    target = np.array([[0.0, 2.0], [1.0, 0.0], [1.0, 0.0]])
    found = pair_distances(source, target, np.array([1, 0, 1]))
    assert found["cosine"] == pytest.approx([0, 0, 1])
    assert found["euclidean"] == pytest.approx([1 / np.sqrt(2), 0, 1])


def test_features_that_cannot_be_compared_are_refused():
    with pytest.raises(InvalidInput, match=r"target features have shape \(1, 3\)"):
        feature_distances(np.zeros((4, 3)), np.zeros((1, 3)), np.zeros(1, np.intp))
    with pytest.raises(InvalidInput, match="columns"):
        feature_distances(np.zeros((4, 3)), np.zeros((4, 2)), np.arange(4))
