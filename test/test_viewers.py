# SPDX-License-Identifier: Apache-2.0
"""The layouts for Foxglove and RViz name topics and fields that exist."""

import importlib
import json
from pathlib import Path

import pytest
import yaml
from sensor_msgs.msg import Image

from sticker_uq.nodes.common import qos
from sticker_uq.nodes.detector.camera_feed import SceneOutputs
from sticker_uq.nodes.recorder.node import TOPICS

VIEWERS = Path(__file__).parents[1] / "config" / "viewers"
LAYOUT = json.loads((VIEWERS / "foxglove.json").read_text())
KINDS = {f"/{topic.lstrip('/')}": kind for topic, (_, kind, _) in TOPICS.items()}
KINDS["/annotated"] = "sensor_msgs/msg/Image"


def fields_of(kind):
    package, _, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name).get_fields_and_field_types()


def paths():
    for panel in LAYOUT["configById"].values():
        yield from (each["value"] for each in panel.get("paths", ()))
        yield from (panel[key] for key in ("topicPath", "topicToRender") if key in panel)
        yield from (each for each in panel.get("imageMode", {}).values())


def panels(node):
    return [node] if isinstance(node, str) else [*panels(node["first"]), *panels(node["second"])]


@pytest.mark.parametrize("path", paths())
def test_every_path_of_the_layout_is_a_topic_with_these_fields(path):
    topic, *fields = path.replace("[:]", "").split(".")
    kind = KINDS[topic]
    for field in fields:
        known = fields_of(kind)
        assert field in known, path
        kind = known[field].removeprefix("sequence<").removesuffix(">").replace("/", "/msg/")


def test_every_panel_is_placed_once():
    assert sorted(panels(LAYOUT["layout"])) == sorted(LAYOUT["configById"])


def test_every_picture_of_rviz_is_one_that_the_detector_publishes_with_this_reliability():
    published = {}

    class Node:
        def get_logger(self):
            return self

        def info(self, text):
            pass

    SceneOutputs(Node(), lambda kind, topic, profile: published.update({f"/{topic}": (kind, profile)}))
    displays = yaml.safe_load((VIEWERS / "cell.rviz").read_text())["Visualization Manager"]["Displays"]
    topics = [each["Topic"] for each in displays if each["Class"] == "rviz_default_plugins/Image"]
    assert topics
    for topic in topics:
        assert published[topic["Value"]] == (Image, qos.RELIABLE)
        assert topic["Reliability Policy"] == "Reliable"
