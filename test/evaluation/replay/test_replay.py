# SPDX-License-Identifier: Apache-2.0
"""A replay assesses every image once, says what it could not read, and leaves whole files or none."""

import csv
import hashlib
import json
from dataclasses import replace as changed
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from sticker_uq.evaluation.replay.assessing import one_by_one
from sticker_uq.evaluation.replay.comparison import LiveComparison
from sticker_uq.evaluation.replay.replay import Replay
from sticker_uq.evaluation.replay.tables import image_row
from sticker_uq.evaluation.reporting.replay_report import write_replay
from sticker_uq.gate import Policy, judge
from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.sources import ImageSource, SourceImage, open_source
from sticker_uq.plain import to_plain
from sticker_uq.scene import InvalidInput, Outcome, Status, Verdict


class Perception:
    """Stands in for the real one: the same objects in every image, and a digest of its pixels."""

    def __init__(self, assessment):
        self.assessment = assessment
        self.stamps = []

    def assess(self, image, stamp_ns=0, frame_id="", keep_saliency=False, facts=None):
        self.stamps.append(stamp_ns)
        digest = hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()
        if not image.any():
            raise InvalidInput("image is black: expected a picture")
        saliency = np.ones(image.shape[:2], np.float32) if keep_saliency else None
        localization = changed(self.assessment.localization, saliency=saliency)
        return changed(
            self.assessment,
            stamp_ns=stamp_ns,
            frame_id=frame_id,
            image_digest=digest,
            localization=localization,
        )

    def failed_assessment(self, stamp_ns, frame_id, reason):
        return changed(
            self.assessment,
            stamp_ns=stamp_ns,
            frame_id=frame_id,
            status=Status.FAILED,
            status_text=reason,
            image_size=(0, 0),
            objects=(),
            unstable=(),
            uncertainty=changed(self.assessment.uncertainty, objects=0, unstable=0),
            localization=None,
            timings={},
        )


@pytest.fixture
def perception(assessment):
    return Perception(assessment)


@pytest.fixture
def folder(tmp_path, image):
    """Four pictures: two good ones, one that is no picture, one that is black."""
    path = tmp_path / "pictures"
    path.mkdir()
    for index, name in enumerate(("lid1.png", "lid2.png")):
        picture = image.copy()
        picture[0, 0] = index + 1
        cv2.imwrite(str(path / name), picture)
    (path / "lid3.png").write_bytes(b"not a picture")
    cv2.imwrite(str(path / "lid4.png"), np.zeros_like(image))
    return path


def run(folder, perception, out, on_image=lambda *_: None, **options):
    source = open_source(folder)
    replay = Replay(source=source, name="pictures", policy=Policy(), out=out, **options)
    return write_replay(replay.run(one_by_one(source, perception), on_image), Policy(), out)


def test_every_image_is_a_row_with_what_the_policy_says_of_it(folder, perception, tmp_path, assessment):
    summary = run(folder, perception, tmp_path / "out")
    rows = pq.read_table(tmp_path / "out/images.parquet").to_pylist()
    assert [(r["image"], r["stamp_ns"], r["status"]) for r in rows] == [
        ("lid1.png", 0, "OK"),
        ("lid2.png", 1, "OK"),
        ("lid3.png", 2, "FAILED"),
        ("lid4.png", 3, "FAILED"),
    ]
    assert "expected a JPEG or PNG" in rows[2]["status_text"]
    assert rows[3]["status_text"] == "image is black: expected a picture"
    image = open_source(folder)
    first = perception.assess(next(iter(image)).image, 0, "")
    decision = judge(first, Policy())
    assert rows[0]["assessment_digest"] == first.digest
    assert rows[0]["decision_id"] == decision.decision_id
    assert rows[0]["outcome"] == decision.outcome.name == "WORK"
    assert rows[0]["shannon_entropy"] == assessment.uncertainty.shannon_entropy
    assert dict(rows[0]["timings_ms"]) == assessment.timings
    assert [r["outcome"] for r in rows[2:]] == ["BLOCKED", "BLOCKED"]
    assert (summary.images, summary.failed, summary.objects, summary.unstable) == (4, 2, 6, 2)
    assert summary.outcomes == {"BLOCKED": 2, "WORK": 2}


def test_every_object_is_a_row_with_all_its_numbers(folder, perception, tmp_path, assessment, decision):
    run(folder, perception, tmp_path / "out")
    rows = pq.read_table(tmp_path / "out/objects.parquet").to_pylist()
    assert len(rows) == 8
    for row, observed, verdict in zip(
        rows[:4], (*assessment.objects, *assessment.unstable), decision.verdicts, strict=True
    ):
        assert np.float32([row["x1"], row["y1"], row["x2"], row["y2"]]).tolist() == observed.box.tolist()
        assert row["p_sticker"] == float(observed.probabilities[2])
        assert row["label"] == observed.label.name.lower()
        np.testing.assert_equal(row["mutual_information"], observed.mutual_information)
        np.testing.assert_equal(np.reshape(row["box_covariance"], (4, 4)), observed.box_covariance)
        assert row["verdict"] == verdict.verdict.name


def test_csv_holds_the_same_numbers_to_the_last_digit(folder, perception, tmp_path):
    run(folder, perception, tmp_path / "a")
    run(folder, perception, tmp_path / "b", table_format="csv")
    for table in ("images", "objects"):
        binary = pq.read_table(tmp_path / f"a/{table}.parquet").to_pylist()
        with open(tmp_path / f"b/{table}.csv", newline="") as file:
            text = list(csv.DictReader(file))
        assert list(text[0]) == list(binary[0])
        for row, line in zip(binary, text, strict=True):
            for name, value in row.items():
                if isinstance(value, float):
                    np.testing.assert_equal(
                        np.float32(float(line[name])) if name[:2] in ("x1", "p_") else float(line[name]),
                        value,
                    )
                elif name in ("timings_ms", "monitors"):
                    assert json.loads(line[name]) == dict(value)
                elif name == "box_covariance":
                    np.testing.assert_equal(json.loads(line[name]), value)
                else:
                    assert line[name] == str(value)


@pytest.mark.parametrize(
    ("pictures", "expected"),
    [(None, {"lid1.png.jpg", "lid2.png.jpg", "lid4.png.jpg"}), (1, {"lid1.png.jpg"}), (0, None)],
)
def test_as_many_pictures_as_asked_for(folder, perception, tmp_path, pictures, expected):
    summary = run(folder, perception, tmp_path / "out", pictures=pictures)
    drawn = tmp_path / "out/pictures"
    assert ({f.name for f in drawn.iterdir()} if drawn.exists() else None) == expected
    assert {f for f in summary.files if f.startswith("pictures/")} == {
        f"pictures/{name}" for name in expected or ()
    }
    assert all((tmp_path / "out" / f).is_file() for f in summary.files)


def test_the_report_and_the_summary_tell_what_was_done(folder, perception, tmp_path):
    seen = []
    summary = run(
        folder,
        perception,
        tmp_path / "out",
        environment={"Python": "3"},
        on_image=lambda *one: seen.append(one[1]),
    )
    html = (tmp_path / "out/report.html").read_text("utf-8")
    for words in (
        "4 images of pictures",
        "2 of them could not be used",
        "image is black",
        "Image lid1.png",
        "What the detector noticed",
        "What kept objects and scenes from being released",
        summary.policy_hash,
    ):
        assert words in html
    stored = json.loads((tmp_path / "out/summary.json").read_text())
    assert stored == to_plain(summary)
    assert stored["environment"] == {"Python": "3"}
    assert stored["timings_ms"] == {"encode": 10.0, "sample": 30.0, "total": 40.0}
    assert [scene.stamp_ns for scene in seen] == [0, 1, 2, 3]


def test_what_a_scene_does_not_release_is_not_counted_as_removable(assessment, decision):
    assert image_row("lid", assessment, decision)["removable"] == 1
    assert image_row("lid", assessment, changed(decision, outcome=Outcome.ASK))["removable"] == 0


def test_decisions_are_counted_against_the_labels(folder, perception, tmp_path, decision):
    (released,) = (v.object for v in decision.removable())
    logo = next(v.object for v in decision.verdicts if v.verdict is Verdict.KEEP and not v.object.unstable)

    def labelled(name, boxes, labels):
        found = np.array(boxes, np.float32).reshape(-1, 4)
        size = perception.assessment.image_size
        return LabelledImage(Path(f"{name}.png"), 0, *size, found, np.array(labels, np.int64))

    far = [600.0, 440.0, 630.0, 470.0]
    labels = {
        "lid1": labelled("lid1", [released.box, logo.box, far], [2, 1, 2]),  # one of two stickers is released
        "lid2": labelled("lid2", [released.box], [1]),  # what is released is a logo
        "lid3": labelled("lid3", [], []),  # cannot be assessed
        "lid9": labelled("lid9", [], []),  # is not there
    }
    summary = run(folder, perception, tmp_path / "out", labels=labels)
    found = summary.labelled
    assert (found.images, str(found.removed), str(found.wrongful)) == (3, "1 of 2", "1 of 3")
    assert (found.wrong_objects, found.on_logo) == (1, 1)
    assert summary.remarks == ("1 of 4 labelled images are not there, first lid9",)
    assert (str(found.clean), str(found.left), str(found.asked)) == ("0 of 2", "0 of 0", "3 of 3")
    report = (tmp_path / "out/report.html").read_text()
    assert "1 removals would do harm, 1 of them on logos" in report
    assert "stickers released, of those labelled" in report
    stored = json.loads((tmp_path / "out/summary.json").read_text())
    assert stored["labelled"]["removed"] == {"events": 1, "of": 2}
    assert "What to do: the images could not be read: their rows say why" in report
    assert run(folder, perception, tmp_path / "without").labelled is None
    labels["lid2"] = changed(labels["lid2"], width=1)
    with pytest.raises(InvalidInput, match=r"lid2\.png is \d+x\d+ px, its labels are for 1x"):
        run(folder, perception, tmp_path / "turned", labels=labels)


def test_a_long_source_shows_where_something_changed(perception, tmp_path, assessment):
    class Long(ImageSource):
        topic = "/image"

        def __len__(self):
            return 100

        def __iter__(self):
            for index in range(100):
                image = None if index in (40, 41) else np.full((360, 480, 3), 90, np.uint8)
                yield SourceImage(
                    image, index, "camera", f"{index:06d}", "" if image is not None else "broken"
                )

    replay = Replay(source=Long(), name="long", policy=Policy(), out=tmp_path / "out", pictures=0)
    result = replay.run(one_by_one(Long(), perception))
    write_replay(result, Policy(), tmp_path / "out")
    html = (tmp_path / "out/report.html").read_text("utf-8")
    assert [index for index in range(100) if f"Image {index:06d}" in html] == [0, 40, 42]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings_hash": "00", "image_digest": "11"}, "settings_hash was efefef"),
        ({"image_digest": "11"}, "image_digest was abab"),
        # a recording of before
        ({"device": "cpu, engine 3", "unstable": ()}, "device was , is cpu, engine 3"),
        ({"unstable": ()}, "other unstable"),
        ({"status": Status.FAILED, "status_text": "?"}, "status was 1, is 3"),
    ],
)
def test_one_difference_is_named_and_disagrees(assessment, change, words):
    live = LiveComparison("/scene", lambda: [assessment, changed(assessment, stamp_ns=1)])
    live.add(changed(assessment, **change))
    assert not live.agrees
    assert live.missing_count == 1
    assert words in live.describe_differences()[0]


def test_a_replay_that_says_the_same_agrees_and_of_several_with_one_stamp_the_last_counts(assessment):
    assert not LiveComparison("/scene", lambda: [assessment]).agrees, "nothing was compared"
    other = changed(assessment, image_digest="11")
    live = LiveComparison("/scene", lambda: [other, assessment])
    live.add(changed(assessment, timings={"encode": 99.0}))
    live.add(changed(assessment, stamp_ns=99))
    assert (live.count, live.identical, live.describe_differences(), live.missing_count, live.agrees) == (
        1,
        1,
        [],
        0,
        True,
    )


def test_a_difference_in_the_last_bit_counts(assessment):
    box = assessment.objects[0].box.copy()
    box[0] = np.nextafter(box[0], np.float32(1e9))
    other = changed(assessment, objects=(changed(assessment.objects[0], box=box), *assessment.objects[1:]))
    live = LiveComparison("/scene", lambda: [assessment])
    live.add(other)
    assert live.describe_differences() == [f"image at {assessment.stamp_ns} ns: other objects"]
