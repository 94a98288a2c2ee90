# SPDX-License-Identifier: Apache-2.0
"""The tables of Wozniak et al. (S004) beside ours, for :mod:`benchmarks.papers`."""

from typing import Any

import numpy as np

from benchmarks.tables import markdown
from sticker_uq_lab.corruptions import LabelledPicture, transform
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.robustness.distances import ComparedPicture
from sticker_uq_lab.robustness.frequencies import CoverageRow, coverage
from sticker_uq_lab.robustness.spec import preset

Printed = dict[str, Any]


def medical(printed: Printed) -> str:
    """Boxes 5 and 7 and figure A1 of Wozniak et al.: the relation, computed with the specification of the package."""
    spec, distance = preset("medical-diagnosis"), printed["wozniak"]["box_7"]["distance"]
    published = printed["wozniak"]["figure_a1"]["changes"]
    rows = []
    for metric, (source, target) in printed["wozniak"]["box_5"].items():
        change, epsilon = round(abs(target - source), 3), spec.epsilon(metric, distance)
        rows.append(
            (metric, f"{source:.3f}", f"{target:.3f}", f"{published[metric]:.3f}", f"{change:.3f}", f"{epsilon:g}",
             "violated" if change > epsilon else "holds")
        )  # fmt: skip
    return markdown(
        (
            "metric",
            "source",
            "target",
            "change, published",
            "change, here",
            f"epsilon(d = {distance:g})",
            "relation",
        ),
        rows,
    )


def significance(printed: Printed) -> str:
    """The significance of the circumstances in figure A1 of Wozniak et al., computed with the specification of the package."""
    sheet, spec = printed["wozniak"]["figure_a1"], preset("medical-diagnosis")
    rows = [
        (
            c.name, f"{c.frequency:g}", f"{sheet['relative_frequency'][c.name]:g}",
            f"{c.exposure} x {c.likelihood} x {c.severity}", str(sheet["significance"][c.name]), str(c.significance),
        )
        for c in sorted(spec.circumstances, key=lambda c: -c.significance)
    ]  # fmt: skip
    return markdown(
        (
            "circumstance", "probability", "relative frequency in the source images", "exposure x likelihood x severity",
            "significance, published", "here",
        ),
        rows,
    )  # fmt: skip


def source_coverage(printed: Printed) -> str:
    """The coverage in figure A1 of Wozniak et al., computed from the published relative frequencies."""
    sheet = printed["wozniak"]["figure_a1"]
    found = coverage(
        [
            CoverageRow(
                circumstance=c.name, significance=c.significance, target=c.frequency, source=share, low=0, high=1, status="",
            )
            for c in preset("medical-diagnosis").circumstances
            for share in (sheet["relative_frequency"][c.name],)
        ]
    )  # fmt: skip
    here = {
        "missing circumstances": found.missing,
        "over- or under-represented": found.misrepresented,
        "covered": found.covered,
    }
    rows = [
        (name, f"{sheet['coverage'][name]} %", f"{100 * share:.1f} %".replace(".0 ", " "))
        for name, share in here.items()
    ]
    return markdown(("share of the circumstances", "published", "here"), rows)


def aberration(printed: Printed) -> str:
    """Box 6 of Wozniak et al.: SSIM of a poor lens on photographs of roads, and of ours on eight rendered laptops."""
    rows = [
        (f"{strength:g}", f"{1 - paper:.3f}", f"{1 - here:.3f}", f"{paper:.3f}", f"{here:.3f}")
        for strength, paper, here in aberration_distances(printed)
    ]
    return markdown(
        ("parameter (here: %)", "SSIM, paper", "SSIM, here", "distance, paper", "distance, here"), rows
    )


def aberration_distances(printed: Printed) -> list[tuple[float, float, float]]:
    """Strength of a poor lens, and 1 - SSIM in the paper and here."""
    pictures = [render(sample_scene(seed), size=(640, 480)).image for seed in range(3000000, 3000008)]
    nothing = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    found = []
    for strength, ssim in printed["wozniak"]["box_6"]:
        changed = [
            transform(LabelledPicture.of(one, *nothing), "chromatic_aberration", strength, 0).image
            for one in pictures
        ]
        here = np.mean([ComparedPicture(a).compare(b).ssim for a, b in zip(pictures, changed, strict=True)])
        found.append((strength, 1 - ssim, 1 - float(here)))
    return found
