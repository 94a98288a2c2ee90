# SPDX-License-Identifier: Apache-2.0
"""What blocked whom, counted from the decisions, and labels that certain detections contradict."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.evaluation.replay.findings import (
    LABEL_SCHEMA,
    LABELS_SHOWN,
    LIMIT_SCHEMA,
    BlockedBy,
    LabelErrors,
    contradiction_text,
    remedy,
)
from sticker_uq.gate import Policy, judge
from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.sources import SourceImage
from sticker_uq.scene import ObjectClass, SceneAssessment, SceneDecision, Status, UnexplainedRegion, Verdict
from sticker_uq.testing.scenes import HERE, THERE, assessment, observed, rarely_seen

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


def test_every_limit_counts_what_it_blocked_and_what_it_blocked_alone() -> None:
    doubtful = observed(HERE, shannon_entropy=1.2)
    more_so = observed(HERE, shannon_entropy=1.4, variation_ratio=0.5)
    rows = rows_of(
        assessment(doubtful),
        assessment(more_so, unstable=[rarely_seen(THERE, passes=10)]),
        assessment(observed(HERE)),
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


def test_a_scene_is_blocked_as_a_whole() -> None:
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


def test_a_place_has_a_name_without_numbers_and_a_restriction_blocks_nothing() -> None:
    scene = assessment(observed(HERE, shannon_entropy=1.2), status=Status.DEGRADED, status_text="no novelty")
    assert [key[0] for key in rows_of(scene)] == ["object"]
    region = UnexplainedRegion(np.array(THERE, np.float32), 0.5, 0.01)
    seen = replace(scene.localization, unexplained_objectness=0.5, unexplained=(region,))
    (row,) = rows_of(assessment(localization=seen)).values()
    assert (row["reason"], row["name"]) == ("missed_place", "a sticker may have been missed")


def labelled(*objects: tuple[tuple[float, float, float, float], ObjectClass]) -> dict[str, LabelledImage]:
    boxes = np.float32([box for box, _ in objects]).reshape(-1, 4)
    labels = np.array([label for _, label in objects], np.int64)
    return {"lid": LabelledImage(Path("lid.png"), 0, 640, 480, boxes, labels)}


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        ([(HERE, ObjectClass.STICKER)], []),
        ([(HERE, ObjectClass.LOGO)], ["logo"]),
        ([(THERE, ObjectClass.STICKER)], ["nothing"]),
        ([], ["nothing"]),
    ],
)
def test_a_certain_detection_that_the_labels_contradict_is_listed(truth, expected) -> None:
    errors = LabelErrors(labelled(*truth))
    image = np.arange(480 * 640 * 3, dtype=np.uint8).reshape(480, 640, 3)
    errors.add(SourceImage(image, 0, "", "lid.png"), decided(assessment(observed(HERE))))
    errors.add(SourceImage(image, 0, "", "lid.png"), decided(assessment(observed(HERE, shannon_entropy=1.2))))
    assert [row["labelled"] for row in errors.rows] == expected
    assert all(list(row) == LABEL_SCHEMA.names for row in errors.rows)
    for row, crop in errors.pictures():
        assert row["detected"] == "sticker"
        assert 0 < crop.shape[0] < 480
        assert 0 < crop.shape[1] < 640


@pytest.mark.parametrize(
    ("shift", "label", "expected"),
    [
        (0.3, ObjectClass.STICKER, []),
        (0.5, ObjectClass.STICKER, ["box is loose (IoU 0.33)"]),
        (0.9, ObjectClass.STICKER, ["labelled nothing"]),
        (0.5, ObjectClass.LOGO, ["labelled nothing"]),
        (0.3, ObjectClass.LOGO, ["labelled logo"]),
    ],
)
def test_a_label_of_the_same_class_that_overlaps_little_makes_the_box_loose(shift, label, expected) -> None:
    x1, y1, x2, y2 = HERE
    moved = (x1 + shift * (x2 - x1), y1, x2 + shift * (x2 - x1), y2)
    errors = LabelErrors(labelled((moved, label)))
    errors.add(SourceImage(None, 0, "", "lid.png"), decided(assessment(observed(HERE))))
    assert [contradiction_text(row) for row in errors.rows] == expected


def test_the_detected_class_decides_whether_a_box_is_loose() -> None:
    x1, y1, x2, y2 = HERE
    half, width = (x1 + 0.5 * (x2 - x1), y1, x2 + 0.5 * (x2 - x1), y2), x2 - x1
    errors = LabelErrors(
        labelled(
            (half, ObjectClass.STICKER), ((x1 + 0.4 * width, y1, x2 + 0.4 * width, y2), ObjectClass.LOGO)
        )
    )
    errors.add(SourceImage(None, 0, "", "lid.png"), decided(assessment(observed(HERE))))
    (row,) = errors.rows
    assert (row["labelled"], row["iou"]) == ("loose", pytest.approx(1 / 3))


def test_images_without_labels_are_counted_and_only_the_surest_are_shown() -> None:
    errors = LabelErrors(labelled())
    image = np.zeros((480, 640, 3), np.uint8)
    certain = decided(assessment(observed(HERE)))
    assert certain.verdicts[0].verdict is Verdict.REMOVE
    errors.add(SourceImage(image, 0, "", "other.png"), certain)
    for _ in range(LABELS_SHOWN + 5):
        errors.add(SourceImage(image, 0, "", "lid.png"), certain)
    assert errors.unlabelled == 1
    assert len(errors.rows) == LABELS_SHOWN + 5
    assert len(errors.pictures()) == LABELS_SHOWN


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
def test_each_blocker_has_a_remedy(reason: str, subject: str, told: str) -> None:
    assert told in remedy({"reason": reason, "subject": subject})
