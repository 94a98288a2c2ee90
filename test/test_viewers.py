# SPDX-License-Identifier: Apache-2.0
"""The layout for Foxglove names topics and fields that exist."""

import importlib
import json
from pathlib import Path

import pytest

from sticker_uq.nodes.recorder.node import TOPICS

LAYOUT = json.loads((Path(__file__).parents[1] / "config" / "viewers" / "foxglove.json").read_text())
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
