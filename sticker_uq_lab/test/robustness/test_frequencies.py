# SPDX-License-Identifier: Apache-2.0
"""Circumstances are counted with the uncertainty of counting."""

from dataclasses import replace

from lab_helpers.published import MDS_SOURCE_FREQUENCIES, mds_specification
from lab_helpers.robustness import specification_of
from sticker_uq_lab.robustness.frequencies import CoverageRow, coverage, describe_source


def test_tags_are_counted_where_there_are_any(source):
    images = [replace(image, tags=frozenset({"noisy"})) for image in source.images] * 25
    images = [*images[:80], *(replace(image, tags=frozenset()) for image in images[80:])]
    tagged = replace(source, images=tuple(images), tagged=True)
    spec = specification_of(
        {"name": "noisy", "probability": 0.5},
        {"name": "turned", "probability": 0.2},
        {"name": "never", "probability": 0.0},
    )
    noisy, turned, never = describe_source(spec, tagged)
    assert (noisy.source, noisy.status) == (0.8, "over-represented")
    assert 0.5 < noisy.low < 0.8 < noisy.high
    assert turned.status == "missing"
    assert never.status == "covered"
    few = replace(tagged, images=tuple(images[70:]))
    scarce = specification_of({"name": "noisy", "probability": 0.9})
    assert describe_source(scarce, few)[0].status == "under-represented"
    assert describe_source(spec, source) == []


def test_coverage_is_that_of_the_published_sheet():
    found = coverage(
        [
            CoverageRow(
                circumstance=c.name,
                significance=c.significance,
                target=c.frequency,
                source=MDS_SOURCE_FREQUENCIES[c.name],
                low=0,
                high=1,
                status="",
            )
            for c in mds_specification().circumstances
        ]
    )
    # figure A1: missing 63 %, over- or under-represented 100 %, covered 0 %
    assert (round(found.missing * 100 + 0.01), found.misrepresented, found.covered) == (63, 1, 0)
    assert found.to_generate[0] == "truncated"
    assert len(found.to_generate) == 8
