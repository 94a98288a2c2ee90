"""The published assessment of a medical diagnosis system (MDS), as a known answer (Wozniak et al., boxes 1, 3, 5, 7)."""

from __future__ import annotations

from sticker_uq.lab.robustness.relation import Piece, Relation
from sticker_uq.lab.robustness.spec import Circumstance, Specification, SystemDescription

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
_CIRCUMSTANCES = (
    ("density-contrast", "Density contrast may vary significantly", 0.15, (3, 2, 3)),
    ("shifted-lines", "Some pixel lines may be shifted", 0.2, (3, 3, 2)),
    ("truncated", "The cross-section may be truncated", 0.15, (5, 2, 2)),
    ("motion-blur", "Images may be blurred due to motion blur", 0.1, (5, 1, 3)),
    ("gaussian-blur", "Images may be blurred (Gaussian blur)", 0.1, (3, 1, 3)),
    ("salt-and-pepper", "There may be salt and pepper noise in the images", 0.1, (3, 1, 1)),
    ("rotation", "The cross-sectional image can be rotated between -20 and 20 degrees", 0.1, (5, 1, 2)),
    ("resolution", "Image resolution may be altered during preprocessing", 0.1, (3, 2, 2)),
)


def mds_specification() -> Specification:
    """The specification of the medical diagnosis system, with the published relation and its jump."""
    circumstances = tuple(
        Circumstance(
            name=name,
            views={"AI developer": text},
            probability=probability,
            exposure=exposure,
            likelihood=likelihood,
            severity=severity,
        )
        for name, text, probability, (exposure, likelihood, severity) in _CIRCUMSTANCES
    )
    return Specification(
        system=SystemDescription(name="MDS", description="medical diagnosis system on CT sections"),
        circumstances=circumstances,
        relations={name: paper_relation() for name in MDS_SOURCE},
    )


def paper_relation() -> Relation:
    """The published example, with its jump: 0.01 up to d = 0.25, d beyond (Wozniak et al., box 7)."""
    return Relation(pieces=(Piece(up_to=0.25, intercept=0.01), Piece(slope=1.0)), continuous=False)
