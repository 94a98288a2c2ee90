# SPDX-License-Identifier: Apache-2.0
"""What blocked whom, counted from the decisions."""

from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.evaluation.replay.findings import LIMIT_SCHEMA, BlockedBy, remedy
from sticker_uq.gate import Policy, judge
from sticker_uq.scene import SceneAssessment, SceneDecision, Status, UnexplainedRegion
from sticker_uq.testing.scenes import HERE, THERE, assessment, object_at, rarely_seen

POLICY = Policy(max_dil=1.0, max_dil_clean=1.0, max_unexplained_objectness=0.1)


def decided(scene: SceneAssessment) -> SceneDecision:
    return judge(scene, POLICY)


def rows_of(*scenes: SceneAssessment) -> dict[tuple[str, str, str], dict[str, object]]:
    blocked = BlockedBy()
    for scene in scenes:
        blocked.add(decided(scene))
    rows = blocked.rows()
    assert all(list(row) == LIMIT_SCHEMA.names for row in rows)
    return {(row["about"], row["reason"], row["subject"]): row for row in rows}


def test_every_limit_counts_what_it_blocked_and_what_it_blocked_alone():
    doubtful = object_at(HERE, shannon_entropy=1.2)
    more_so = object_at(HERE, shannon_entropy=1.4, variation_ratio=0.5)
    rows = rows_of(
        assessment(doubtful),
        assessment(more_so, unstable=[rarely_seen(THERE, passes=10)]),
        assessment(object_at(HERE)),
    )
    entropy = rows["object", "above_limit", "shannon_entropy"]
    assert (entropy["blocked"], entropy["alone"], entropy["limit"]) == (2, 1, POLICY.max_shannon_entropy)
    assert entropy["value_median"] == pytest.approx(1.3)
    assert entropy["name"] == "Shannon entropy"
    assert rows["object", "above_limit", "variation_ratio"]["alone"] == 0
    rare = rows["object", "few_passes", ""]
    assert (rare["blocked"], rare["alone"]) == (1, 1)
    assert np.isnan(rare["value_median"])
    assert rare["name"] == "too few passes detected it"
    assert len(rows) == 3


def test_a_scene_is_blocked_as_a_whole():
    scene = assessment()
    seen = replace(scene.localization, unexplained_objectness=0.5)
    scene = replace(scene, localization=seen)
    (row,) = rows_of(scene, scene).values()
    assert (row["about"], row["subject"], row["blocked"], row["alone"]) == (
        "scene",
        "unexplained_objectness",
        2,
        2,
    )


def test_a_place_has_a_name_without_numbers_and_a_restriction_blocks_nothing():
    scene = assessment(object_at(HERE, shannon_entropy=1.2), status=Status.DEGRADED, status_text="no novelty")
    assert [key[0] for key in rows_of(scene)] == ["object"]
    region = UnexplainedRegion(np.array(THERE, np.float32), 0.5, 0.01)
    seen = replace(scene.localization, unexplained_objectness=0.5, unexplained=(region,))
    (row,) = rows_of(assessment(localization=seen)).values()
    assert (row["reason"], row["name"]) == ("missed_place", "a sticker may have been missed")


@pytest.mark.parametrize(
    ("reason", "subject", "told"),
    [
        ("possible_sticker", "sticker_probability", "train it on more pictures like these"),
        ("above_limit", "risk", "comes with the calibration"),
        ("missed_place", "unexplained_objectness", "label what was missed"),
        ("no_novelty_network", "scene_distance", "train a novelty network"),
        ("above_limit", "scene_distance", "the novelty network does not know this"),
    ],
)
def test_each_blocker_has_a_remedy(reason, subject, told):
    assert told in remedy({"reason": reason, "subject": subject})
