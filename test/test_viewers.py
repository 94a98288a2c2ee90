# SPDX-License-Identifier: Apache-2.0
"""The layouts for Foxglove and RViz name topics and fields that exist."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from sensor_msgs.msg import Image

from sticker_uq.evaluation import annotated_images
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.images import bgr_from_msg
from sticker_uq.nodes.common.liveliness import type_of
from sticker_uq.nodes.detector.camera_feed import SceneOutputs
from sticker_uq.nodes.recorder import annotations
from sticker_uq.nodes.recorder.node import TOPICS
from sticker_uq.nodes.supervisor.outputs import SupervisorOutputs
from sticker_uq.testing.scenes import assessment

VIEWERS = Path(__file__).parents[1] / "config" / "viewers"
LAYOUT = json.loads((VIEWERS / "foxglove.json").read_text())
KINDS = {f"/{topic.lstrip('/')}": type_of(kind) for topic, (kind, _) in TOPICS.items()}
KINDS |= {"/image/compressed": "sensor_msgs/msg/CompressedImage", "/annotations": annotations.TYPE}


def fields_of(kind):
    package, _, name = kind.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name).get_fields_and_field_types()


def paths():
    for panel in LAYOUT["configById"].values():
        yield from (each["value"] for each in panel.get("paths", ()))
        yield from (panel[key] for key in ("topicPath", "topicToRender") if key in panel)
        mode = panel.get("imageMode", {})
        yield from ([mode["imageTopic"], *mode["annotations"]] if mode else ())
        yield from panel.get("topics", ())


def panels(node):
    return [node] if isinstance(node, str) else [*panels(node["first"]), *panels(node["second"])]


@pytest.mark.parametrize("path", paths())
def test_every_path_of_the_layout_is_a_topic_with_these_fields(path):
    topic, *fields = path.replace("[:]", "").split(".")
    if topic == "/markers":
        pytest.importorskip("visualization_msgs")
    kind = KINDS[topic]
    for field in fields:
        known = fields_of(kind)
        assert field in known, path
        kind = known[field].removeprefix("sequence<").removesuffix(">").replace("/", "/msg/")


def test_every_panel_is_placed_once():
    assert sorted(panels(LAYOUT["layout"])) == sorted(LAYOUT["configById"])


class Published(dict):
    """Stands for a node; has type and QoS of what it publishes, by topic."""

    def create_publisher(self, kind, topic, profile):
        self[f"/{topic}"] = (kind, profile)

    def get_logger(self):
        return self

    def info(self, text):
        pass


@pytest.mark.parametrize("display", ["Image", "MarkerArray"])
def test_every_topic_of_rviz_is_one_that_a_node_publishes_with_this_reliability(display):
    published = Published()
    SceneOutputs(published, published.create_publisher)
    SupervisorOutputs(published, "", str)
    displays = yaml.safe_load((VIEWERS / "cell.rviz").read_text())["Visualization Manager"]["Displays"]
    topics = [each["Topic"] for each in displays if each["Class"] == f"rviz_default_plugins/{display}"]
    assert topics
    kind = Image if display == "Image" else pytest.importorskip("visualization_msgs.msg").MarkerArray
    for topic in topics:
        assert published[topic["Value"]] == (kind, qos.RELIABLE)
        assert topic["Reliability Policy"] == "Reliable"


@pytest.mark.parametrize(("raw", "compressed"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_annotated_picture_is_drawn_for_whoever_subscribes(raw, compressed, monkeypatch):
    drawn, sent = [], {}
    wanted = {"annotated": raw, "annotated/compressed": compressed}

    class Publisher:
        def __init__(self, topic):
            self.topic = topic

        def get_subscription_count(self):
            return int(wanted.get(self.topic, False))

        def publish(self, message):
            sent[self.topic] = bgr_from_msg(message)

    monkeypatch.setattr(annotated_images, "annotate", lambda image, scene: drawn.append(image) or image)
    outputs = SceneOutputs(Published(), lambda kind, topic, profile: Publisher(topic))
    outputs.publish_pictures(assessment(), np.full((48, 64, 3), 90, np.uint8), 5.0)
    assert len(drawn) == int(raw or compressed)
    assert sent.keys() == {topic for topic, one in wanted.items() if one}
    assert all(abs(int(picture.mean()) - 90) <= 1 for picture in sent.values())
