# SPDX-License-Identifier: Apache-2.0
"""The published assessment of a medical diagnosis system (MDS), as a known answer (Wozniak et al., boxes 1, 3, 5, 7)."""

from sticker_uq_lab.robustness.spec import Relation, Specification, preset

MDS_SOURCE = {"precision": 0.564, "recall": 0.510, "ap50": 0.526, "ap75": 0.396, "ap": 0.340}
"""Performance on the source data set."""
MDS_TARGET = {"precision": 0.498, "recall": 0.384, "ap50": 0.414, "ap75": 0.264, "ap": 0.246}
"""Performance on the target data set."""
MDS_DISTANCE = 0.154
"""One minus CW-SSIM between the two."""
MDS_SOURCE_FREQUENCIES = {
    "density-contrast": 0.05,
    "shifted-lines": 0.0,
    "truncated": 0.1,
    "motion-blur": 0.05,
    "gaussian-blur": 0.0,
    "salt-and-pepper": 0.0,
    "rotation": 0.0,
    "resolution": 0.0,
}
"""How often each circumstance is in the source data set (box 3)."""


def mds_specification() -> Specification:
    """The specification of the medical diagnosis system."""
    return preset("medical-diagnosis")


def paper_relation() -> Relation:
    """The published example, with its jump: 0.01 up to d = 0.25, d beyond (Wozniak et al., box 7)."""
    return mds_specification().relations["ap"]
