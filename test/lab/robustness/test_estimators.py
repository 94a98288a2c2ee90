# SPDX-License-Identifier: Apache-2.0
"""Estimators give back what a picture was made with; circumstances are counted with the uncertainty of counting."""

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest

from sticker_uq.lab.corruptions import LabelledPicture, transform
from sticker_uq.lab.robustness.frequencies import (
    SourceSet,
    coverage,
    describe_source,
    edge_widths,
    estimate,
    exposure,
    noise,
)
from test.lab.robustness.conftest import specification_of


def discs() -> LabelledPicture:
    """Sharp edges in every direction."""
    image = np.full((300, 400, 3), 60, np.uint8)
    for x in (80, 200, 320):
        for y in (80, 220):
            cv2.circle(image, (x, y), 50, (190, 190, 190), -1, cv2.LINE_AA)
    return LabelledPicture.of(image, np.zeros((0, 4)), np.zeros(0))


@pytest.mark.parametrize("diameter", [6, 9, 12])
def test_blur_is_the_width_of_an_edge_behind_a_known_lens(diameter: float) -> None:
    # The edge behind a disc of that diameter: 10-90 % width by its own integral
    x = np.linspace(-1, 1, 20001)
    profile = np.cumsum(np.sqrt(1 - x**2))
    profile /= profile[-1]
    width = (x[np.searchsorted(profile, 0.9)] - x[np.searchsorted(profile, 0.1)]) * diameter / 2
    sharpest, widest = edge_widths(transform(discs(), "defocus", diameter, 0).image)
    assert sharpest == pytest.approx(width, rel=0.2)
    assert widest == pytest.approx(width, rel=0.2)


def test_motion_widens_edges_in_one_direction() -> None:
    before, after = (
        edge_widths(p.image) for p in (discs(), transform(discs(), "motion_blur", 12, 0, angle=0.0))
    )
    assert before[1] - before[0] < 1.5
    assert after[1] - after[0] > 2.5
    assert math.isnan(edge_widths(np.full((100, 100, 3), 90, np.uint8))[0])


@pytest.mark.parametrize("sigma", [4, 10, 25])
def test_noise_is_the_standard_deviation_that_was_added(sigma: float) -> None:
    assert noise(transform(discs(), "sensor_noise", sigma, 1).image) == pytest.approx(sigma, rel=0.12)


def test_clipped_pixels_tell_nothing_about_noise() -> None:
    picture = discs()
    picture.image[:, :250] = 255
    assert noise(transform(picture, "sensor_noise", 10, 1).image) == pytest.approx(10, rel=0.15)
    assert math.isnan(noise(np.full((100, 100, 3), 255, np.uint8)))


def test_exposure_counts_stops() -> None:
    grey = LabelledPicture.of(np.full((90, 90, 3), 110, np.uint8), np.zeros((0, 4)), np.zeros(0))
    before = exposure(grey.image)
    assert exposure(transform(grey, "overexposure", 1, 0).image) == pytest.approx(before + 1, abs=0.02)
    assert exposure(np.zeros((9, 9, 3), np.uint8)) == -math.inf


def test_what_is_measured_is_counted(source: SourceSet) -> None:
    levels = sorted(estimate(image.picture().image).noise for image in source.images)
    middle = (levels[1] + levels[2]) / 2
    spec = specification_of(
        {"name": "noisy", "probability": 0.9, "measured": {"quantity": "noise", "above": middle}},
        {"name": "dark", "probability": 0.1, "measured": {"quantity": "exposure", "below": -20}},
        {"name": "turned", "probability": 0.2},
    )
    noisy, dark, turned = describe_source(spec, source)
    assert (noisy.count, noisy.source, noisy.found_by) == (2, 0.5, "noise")
    assert noisy.low < 0.5 < noisy.high
    assert noisy.status == "covered"  # 2 of 4 say little
    assert dark.status == "missing"
    assert turned.status == "unknown"
    assert math.isnan(turned.source)


def test_tags_decide_where_there_are_any(source: SourceSet) -> None:
    images = [replace(image, tags=frozenset({"noisy"})) for image in source.images] * 25
    images = [*images[:80], *(replace(image, tags=frozenset()) for image in images[80:])]
    tagged = replace(source, images=tuple(images), tagged=True)
    spec = specification_of(
        {"name": "noisy", "probability": 0.5, "measured": {"quantity": "noise", "above": 1e6}},
        {"name": "turned", "probability": 0.2},
        {"name": "never", "probability": 0.0},
    )
    noisy, turned, never = describe_source(spec, tagged)
    assert (noisy.found_by, noisy.count, noisy.status) == ("tags", 80, "over-represented")
    assert turned.status == "missing"
    assert never.status == "covered"
    few = replace(tagged, images=tuple(images[70:]))
    assert (
        describe_source(specification_of({"name": "noisy", "probability": 0.9}), few)[0].status
        == "under-represented"
    )


def test_coverage_is_that_of_the_published_sheet() -> None:
    from sticker_uq.lab.robustness.frequencies import CoverageRow
    from test.lab.robustness.published import MDS_SOURCE_FREQUENCIES, mds_specification

    rows = []
    for circumstance in mds_specification().circumstances:
        share = MDS_SOURCE_FREQUENCIES[circumstance.name]
        rows.append(
            CoverageRow(
                circumstance=circumstance.name,
                significance=circumstance.significance,
                target=circumstance.frequency,
                images=100,
                count=round(100 * share),
                source=share,
                low=0,
                high=1,
                found_by="tags",
                status="",
            )
        )
    found = coverage(rows)
    # figure A1: missing 63 %, over- or under-represented 100 %, covered 0 %
    assert (round(found.missing * 100 + 0.01), found.misrepresented, found.covered) == (63, 1, 0)
    assert found.to_generate[0] == "truncated"
    assert len(found.to_generate) == 8
