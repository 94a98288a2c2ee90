# SPDX-License-Identifier: Apache-2.0
"""A panel of monitors in the cell: scores in live scenes, repeated by a replay, and objections that reach a person."""

from pathlib import Path

import pytest
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.gate import BlockReason
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.io.messages import scene_from_msg
from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.nodes.detector.node import DetectorNode
from sticker_uq.scene import MonitorScore
from sticker_uq.testing.bench import overrides
from sticker_uq.testing.scenes import object_at
from sticker_uq_msgs.msg import GateState, SceneAssessment
from test.helpers.models import picture
from test.helpers.panels import NAMES, settings, tiny_panel
from test.helpers.supervised import Cell


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cell")
    tiny_panel(made)
    return made


def parameters(folder: Path, **changes: object) -> dict[str, object]:
    names = ("model", "weights", "min_size", "device", "passes", "dil", "threads", "panel", "monitors")
    chosen = settings(folder, panel=str(folder / "panel"), **changes)
    return {name: getattr(chosen, name) for name in names}


def test_live_scores_are_repeated_by_a_replay_byte_for_byte(bench, folder, tmp_path):
    scenes = bench.collect(SceneAssessment, "scene")
    values = parameters(folder)
    node = bench.add(DetectorNode(parameter_overrides=overrides(**values)))
    assert node.start(), node.last_failure
    image = bgr_to_image(picture(1), Time(sec=8, nanosec=9), "lid_camera")
    bench.image_publisher().publish(image)
    bench.until(lambda: scenes, "a scene")
    assert scenes[0].panel_hash
    for seen in scenes[0].objects:
        assert tuple(one.name for one in seen.monitors) == NAMES
        assert all(one.objection == (not one.score <= one.limit) for one in seen.monitors)
    assert "panel" in {time.stage for time in scenes[0].timings}

    recording, stamp = tmp_path / "bag", scene_from_msg(scenes[0]).stamp_ns
    with BagWriter(recording) as bag:
        bag.add_topic("/image", "sensor_msgs/msg/Image")
        bag.add_topic("/scene", "sticker_uq_msgs/msg/SceneAssessment")
        bag.write("/image", stamp, serialize_message(image))
        bag.write("/scene", stamp, serialize_message(scenes[0]))

    def replay(**changes: object) -> tuple[int, str]:
        options = {name: value for name, value in (values | changes).items() if name != "dil"}
        listed = [
            part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))
        ]
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        result = CliRunner().invoke(
            app,
            ["replay", str(recording), "--verify", "--no-dil", "--format", "csv", "--out", str(out), *listed],
        )
        return result.exit_code, result.output

    code, text = replay()
    assert code == 0, text
    assert "1 of 1 live assessments" in text
    (table,) = tmp_path.glob("out*/objects.csv")
    assert '""mdsa"": ' in table.read_text()
    code, text = replay(monitors="mdsa")
    assert code == 1
    assert "panel_hash was" in text


def test_an_objection_reaches_the_person_with_its_name(bench):
    cell = Cell(bench)
    cell.camera.changes = {"panel_hash": "p" * 64}
    cell.shows(object_at(monitors=(MonitorScore("pcs", 0.2, 0.5), MonitorScore("mdsa", 9.0, 8.0))))
    gate = cell.until_gate(GateState.STATE_INTERVENTION, BlockReason.PANEL | BlockReason.WAITING_FOR_OPERATOR)
    assert not gate.open
    request = cell.until(lambda: next((r for r in cell.requests if r.request_id), None), "a question")
    (asked,) = request.objects
    assert asked.objectors == ["mdsa"]
    assert ("monitor_objects", "mdsa", 9.0, 8.0) in [
        (r.code, r.subject, r.value, r.limit) for r in asked.reasons
    ]
    assert "mdsa" in request.text
    decided = cell.until(lambda: cell.decisions and cell.decisions[-1], "a decision")
    assert decided.verdicts[0].objectors == ["mdsa"]
