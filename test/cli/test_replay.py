# SPDX-License-Identifier: Apache-2.0
"""`sticker-uq replay` from the command line: options, errors, and the comparison with a live cell."""

import html
import json
import os
from dataclasses import replace as changed

import cv2
import numpy as np
import pandas as pd
import pytest
from builtin_interfaces.msg import Time
from hypothesis import given
from hypothesis import strategies as st
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage, Image
from typer.testing import CliRunner

import sticker_uq.cli.replay as cli_replay
from sticker_uq.cell.bundle import create_bundle
from sticker_uq.cli import app
from sticker_uq.evaluation.replay.comparison import Contender, Differences, JudgedObject, Judgement
from sticker_uq.gate import Policy
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.io.images import decode_compressed, encode_jpeg
from sticker_uq.nodes.common.conversions import header_of, scene_to_msg
from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import ObjectClass, Outcome, Verdict
from sticker_uq.testing.scenes import ELSEWHERE, HERE, THERE
from test.evaluation.conftest import assessment, image  # noqa: F401  # fixtures
from test.evaluation.replay.test_replay import Perception


@pytest.fixture
def loaded(monkeypatch, assessment):  # noqa: F811
    """The settings with which perception was loaded; a stand-in takes its place."""
    settings = []

    def load(given):
        settings.append(given)
        return Perception(assessment)

    monkeypatch.setattr(cli_replay, "load_perception", load)
    return settings


@pytest.fixture
def pictures(tmp_path, image):  # noqa: F811
    folder = tmp_path / "lids"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        cv2.imwrite(str(folder / name), image)
    (folder / "c.png").write_bytes(b"broken")
    return folder


def run(*arguments):
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)], env={"COLUMNS": "150"})
    assert "Traceback" not in result.output
    return result


def test_a_folder_with_a_broken_picture_is_replayed_with_status_0(loaded, pictures, tmp_path):
    result = run(pictures, "--out", tmp_path / "out", "--format", "csv", "--passes", "7", "--pictures", "1")
    assert result.exit_code == 0, result.output
    assert loaded == [PerceptionSettings(passes=7)]
    written = {str(f.relative_to(tmp_path / "out")) for f in (tmp_path / "out").rglob("*") if f.is_file()}
    tables = {"images.csv", "limits.csv", "objects.csv", "summary.json"}
    assert written == tables | {"pictures/a.png.jpg", "report.html"}
    assert "failed" in result.output
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert (summary["images"], summary["failed"]) == (3, 1)
    assert summary["environment"]["setting passes"] == "7"


@pytest.mark.parametrize(
    ("change", "failed", "lost", "remark"),
    [
        (lambda text: text, 0, "", ""),
        (lambda text: None, 0, "", "no metadata.yaml; 1 file(s) read in order of time"),
        (lambda text: text.replace("message_count: 3", "message_count: 5"), 1, "3 of 5 messages of /image", ""),
        (lambda text: text.replace("message_count: 3", "message_count: 2"), 0, "", "counts 2 messages of /image"),
    ],
)  # fmt: skip
def test_what_a_recording_declares_is_counted_and_a_loss_ends_with_status_1(
    loaded,
    tmp_path,
    image,  # noqa: F811
    change,
    failed,
    lost,
    remark,
):
    with BagWriter(tmp_path / "bag") as bag:
        bag.add_topic("/image", "sensor_msgs/msg/Image")
        for number in range(3):
            bag.write("/image", number, serialize_message(bgr_to_image(image, Time(sec=number), "camera")))
    metadata = tmp_path / "bag" / "metadata.yaml"
    text = change(metadata.read_text())
    metadata.unlink() if text is None else metadata.write_text(text)
    result = run(
        tmp_path / "bag", "--out", tmp_path / "out", "--format", "csv", "--pictures", "none", "--json"
    )
    assert result.exit_code == bool(lost), result.output
    told = json.loads(result.stdout)
    assert json.dumps(told) == json.dumps(json.loads((tmp_path / "out/summary.json").read_text()))  # NaN
    assert (told["images"], told["failed"]) == (3 + failed, failed)
    assert told["declared"] == (5 if lost else 3)
    assert told["lost"].startswith(lost)
    assert len(told["remarks"]) == bool(remark)
    assert remark in result.stderr
    assert ("images are lost" in result.stderr) == bool(lost)


def test_a_replay_of_which_nothing_could_be_assessed_has_status_1(loaded, tmp_path):
    folder = tmp_path / "lids"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"broken")
    os.mkfifo(folder / "b.png")
    (folder / "c.png").symlink_to("/dev/zero")
    result = run(folder, "--out", tmp_path / "out", "--format", "csv")
    assert result.exit_code == 1
    assert f"{folder}: none of the images could be assessed" in result.stderr
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert (summary["images"], summary["failed"]) == (3, 3)
    said = (tmp_path / "out/images.csv").read_text()
    assert "b.png: is a named pipe" in said
    assert "c.png: is a device" in said


@pytest.fixture
def strict(tmp_path):
    """A policy under which the sticker of every picture is uncertain."""
    file = tmp_path / "policy.yaml"
    file.write_text("min_probability: 0.97\n")
    return file


def outcomes(folder):
    return json.loads((folder / "summary.json").read_text())["outcomes"]


def test_a_parameter_file_of_the_cell_sets_perception_and_policy(loaded, pictures, tmp_path, strict):
    params = tmp_path / "cell.yaml"
    params.write_text(
        "/**/detector: {ros__parameters: {passes: 9, dropout_rate: 0.1, use_sim_time: true, image_transport: raw}}\n"
        f"supervisor: {{ros__parameters: {{policy: {strict}, consecutive_scenes: 2}}}}\n"
    )
    result = run(pictures, "--out", tmp_path / "out", "--params", params, "--passes", "5")
    assert result.exit_code == 0, result.output
    assert loaded == [PerceptionSettings(passes=5, dropout_rate=0.1)]
    assert outcomes(tmp_path / "out") == {"ASK": 2, "BLOCKED": 1}


def test_a_method_of_saliency_is_asked_for_by_its_name(loaded, pictures, tmp_path):
    run(pictures, "--out", tmp_path / "a", "--saliency", "eigencam")
    assert loaded == [PerceptionSettings(dil_technique="eigencam")]
    refused = run(pictures, "--out", tmp_path / "b", "--saliency", "heat")
    assert refused.exit_code == 2
    assert "gradcam++" in refused.output
    assert not (tmp_path / "b").exists()


def test_a_policy_file_takes_the_place_of_the_packaged_one(loaded, pictures, tmp_path, strict):
    run(pictures, "--out", tmp_path / "a", "--policy", strict)
    run(pictures, "--out", tmp_path / "b")
    assert outcomes(tmp_path / "a") == {"ASK": 2, "BLOCKED": 1}
    assert outcomes(tmp_path / "b") == {"BLOCKED": 1, "WORK": 2}


def test_a_policy_for_one_camera_judges_the_pictures_that_are_said_to_be_its_own(loaded, pictures, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("validity: {camera: lid_camera}")
    result = run(pictures, "--out", tmp_path / "a", "--policy", policy)
    assert "the policy is for camera lid_camera, all else is blocked: name it with --camera" in result.stderr
    assert outcomes(tmp_path / "a") == {"BLOCKED": 3}
    report = (tmp_path / "a/report.html").read_text()
    assert "the policy was made for camera 'lid_camera', not ''" in html.unescape(report)
    assert "calibrate a policy for these pictures and settings" in report
    result = run(pictures, "--out", tmp_path / "b", "--policy", policy, "--camera", "lid_camera")
    assert "--camera" not in result.stderr
    assert outcomes(tmp_path / "b") == {"BLOCKED": 1, "WORK": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.mcap"], "nowhere.mcap: no such file or folder"),
        (["LIDS", "--topic", "/image"], "is not a recording"),
        (["LIDS", "--pictures", "-3"], "--pictures -3: expected all, none or a number"),
        (["LIDS", "--params", "LIMIT"], "unknown parameter consecutive_scene; did you mean consecutive_sc"),
        (["LIDS", "--policy", "LIMIT"], "policy"),
        (["LIDS", "--policy", "nowhere.yaml"], "nowhere.yaml"),
        (["LIDS", "--verify"], "is not a recording of a cell"),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(loaded, pictures, tmp_path, arguments, words):
    (tmp_path / "limit.yaml").write_text("supervisor: {ros__parameters: {consecutive_scene: 9}}")
    places = {"LIDS": "lids", "LIMIT": "limit.yaml"}
    given = [str(tmp_path / places[a]) if a in places else a for a in arguments]
    result = run(*given, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.fixture
def recording(tmp_path, image, assessment):  # noqa: F811
    """Writes a recording of a cell whose detector saw every second image, and said `said` of it."""

    def write(said=lambda scene: scene):
        path = tmp_path / "bag"
        detector = Perception(assessment)
        with BagWriter(path) as bag:
            bag.add_topic("/cell/image/compressed", "sensor_msgs/msg/CompressedImage")
            bag.add_topic("/cell/annotated", "sensor_msgs/msg/Image")
            bag.add_topic("/cell/scene", "sticker_uq_msgs/msg/SceneAssessment")
            for index in range(6):
                picture = image.copy()
                picture[:, :40] = index * 20
                stamp = 1_000_000_000 + index
                jpeg = encode_jpeg(picture)
                message = CompressedImage(header=header_of(stamp, "camera"), format="jpeg", data=jpeg)
                bag.write("/cell/image/compressed", stamp, serialize_message(message))
                bag.write(
                    "/cell/annotated", stamp, serialize_message(Image(header=header_of(stamp, "camera")))
                )
                if index % 2 == 0:
                    scene = said(
                        detector.assess(decode_compressed(np.frombuffer(jpeg, np.uint8)), stamp, "camera")
                    )
                    bag.write("/cell/scene", stamp, serialize_message(scene_to_msg(scene, sequence=index)))
        return path

    return write


def test_a_replay_of_a_live_recording_is_byte_identical(loaded, recording, tmp_path):
    result = run(recording(), "--verify", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (
        "3 of 3 live assessments of /cell/scene repeated byte for byte, 0 differ, 0 without" in result.output
    )


def test_one_live_assessment_that_differs_is_told_and_status_1(loaded, recording, tmp_path):
    def said(scene):
        return changed(scene, image_digest="00") if scene.stamp_ns == 1_000_000_002 else scene

    result = run(recording(said), "--verify", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "2 of 3 live assessments" in result.output
    assert "image at 1000000002 ns: image_digest was 00, is " in result.stderr
    assert (tmp_path / "out/report.html").is_file()


def test_a_recording_without_live_scenes_cannot_be_verified(loaded, tmp_path, image):  # noqa: F811
    with BagWriter(tmp_path / "bag") as bag:
        bag.add_topic("/image/compressed", "sensor_msgs/msg/CompressedImage")
        message = CompressedImage(header=header_of(1, "camera"), format="jpeg", data=encode_jpeg(image))
        bag.write("/image/compressed", 1, serialize_message(message))
    result = run(tmp_path / "bag", "--verify", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "expected one topic of sticker_uq_msgs/msg/SceneAssessment, found none" in result.stderr


def test_several_sources_need_names_of_their_own_and_must_exist(pictures, tmp_path):
    result = run(pictures, pictures, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert f"2 sources are named '{tmp_path.name}/lids': expected different names" in result.stderr
    result = run(pictures, tmp_path / "nowhere", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "nowhere: no such file or folder" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_comparison_with_a_policy_judges_the_same_assessments(loaded, pictures, tmp_path, strict):
    result = run(pictures, "--out", tmp_path / "out", "--format", "csv", "--compare", strict)
    assert result.exit_code == 0, result.output
    assert len(loaded) == 1
    assert f"compared with {strict}: outcome differs in 2 of 3 images" in result.output.replace("\n", " ")
    table = pd.read_csv(tmp_path / "out/candidate.csv")
    assert list(table["outcome"]) == ["WORK", "WORK", "BLOCKED"]
    assert list(table["candidate_outcome"]) == ["ASK", "ASK", "BLOCKED"]
    assert table["released_both"].sum() == 0
    assert table["released_replayed"].sum() == 2
    assert f"Compared with {strict}" in (tmp_path / "out/report.html").read_text()


def test_a_comparison_with_a_bundle_assesses_the_images_again(loaded, pictures, tmp_path):
    settings = PerceptionSettings(passes=2, device="cpu", dil=False)
    policy = tmp_path / "policy.yaml"
    policy.write_text("unmeasured_novelty: release\nmax_dil: 1\nmax_dil_clean: 1\n")
    bundle = create_bundle(tmp_path / "bundle", settings, policy)
    result = run(pictures, "--out", tmp_path / "out", "--compare", bundle.folder)
    assert result.exit_code == 0, result.output
    assert [one.passes for one in loaded] == [PerceptionSettings().passes, 2]
    assert "3 images; objects released only there: 0" in result.output.replace("\n", " ")
    assert "candidate.parquet" in json.loads((tmp_path / "out/summary.json").read_text())["files"]
    assert run(pictures, "--out", tmp_path / "no", "--compare", "nowhere").exit_code == 2


boxes = st.sampled_from([HERE, THERE, ELSEWHERE, (102.0, 100.0, 182.0, 160.0), (140.0, 100.0, 220.0, 160.0)])
objects = st.builds(
    JudgedObject,
    st.sampled_from(ObjectClass),
    boxes,
    st.sampled_from([Verdict.REMOVE, Verdict.KEEP, Verdict.ASK]),
)
judgements = st.builds(
    Judgement,
    st.sampled_from([Outcome.WORK, Outcome.ASK, Outcome.CLEAN, Outcome.BLOCKED]),
    st.lists(objects, max_size=5).map(tuple),
)


def differences(replayed, candidate):
    found = Differences(Contender("other", PerceptionSettings(), Policy()))
    found.add("a.png", replayed, candidate)
    return found.rows[0]


@given(judgements, judgements)
def test_what_differs_is_counted_for_both_sides(replayed, candidate):
    row, back = differences(replayed, candidate), differences(candidate, replayed)
    ways = {
        "objects": lambda side, one: True,
        "released": Judgement.releases,
        "asked": lambda _, one: one.verdict is Verdict.ASK,
    }
    for kind, counts in ways.items():
        for name, side, other in (("replayed", replayed, "candidate"), ("candidate", candidate, "replayed")):
            assert row[f"{kind}_both"] + row[f"{kind}_{name}"] == sum(
                counts(side, one) for one in side.objects
            )
            if kind == "objects":
                assert row[f"{kind}_{name}"] == back[f"{kind}_{other}"]
    same = differences(replayed, replayed)
    assert same["objects_both"] == len(replayed.objects)
    if len({one.box for one in replayed.objects}) == len(replayed.objects):
        assert not same["other_classes"]
        assert not same["released_candidate"]
