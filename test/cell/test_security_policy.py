# SPDX-License-Identifier: Apache-2.0
"""The SROS2 policy: who may say what is what the documentation promises, and covers what the nodes really do."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from sticker_uq.nodes.recorder.node import TOPICS

POLICY = Path(__file__).parents[2] / "config" / "security" / "policy.xml"
ENCLAVES = {"/supervisor", "/detector", "/arm", "/camera", "/console", "/recorder"}


def allowed(kind: str, right: str, name: str) -> set[str]:
    """The enclaves that have ``right`` on the topic, service or action ``name``."""
    found = set()
    for enclave in ElementTree.parse(POLICY).iter("enclave"):
        for group in enclave.iter(f"{kind}s"):
            names = {str(element.text).lstrip("/") for element in group.iter(kind)}
            if group.get(right) == "ALLOW" and names & {name, "*"}:
                found.add(str(enclave.get("path")))
    return found


@pytest.mark.parametrize(
    ("kind", "right", "name", "enclaves"),
    [
        ("topic", "publish", "gate", {"/supervisor"}),
        ("action", "call", "remove_sticker", {"/supervisor"}),
        ("action", "execute", "remove_sticker", {"/arm"}),
        ("topic", "publish", "scene", {"/detector"}),
        ("topic", "publish", "image_check", {"/detector"}),
        ("topic", "subscribe", "image_check", {"/supervisor", "/console", "/recorder"}),
        ("topic", "publish", "image", {"/camera"}),
        ("topic", "publish", "relief", {"/camera"}),
        ("topic", "subscribe", "relief", {"/supervisor", "/console", "/recorder"}),
        ("topic", "publish", "intervention/request", {"/supervisor"}),
        ("service", "request", "intervention/resolve", {"/console"}),
        ("topic", "publish", "console/hold", {"/console"}),
        ("topic", "subscribe", "console/hold", {"/supervisor", "/console", "/recorder"}),
        ("topic", "publish", "arm/status", {"/arm"}),
        ("topic", "subscribe", "arm/status", {"/supervisor", "/console", "/recorder"}),
        ("service", "request", "operate", {"/console"}),
        ("service", "reply", "operate", {"/supervisor"}),
        ("service", "request", "hold", {"/console"}),
        ("service", "request", "reset", {"/console"}),
        ("service", "reply", "reset", {"/supervisor"}),
        ("topic", "publish", "diagnostics", ENCLAVES),
    ],
)
def test_only_those_may_who_must(kind, right, name, enclaves):
    assert allowed(kind, right, name) == enclaves


@pytest.mark.parametrize("topic", [*TOPICS, "image"])
def test_the_recorder_may_hear_what_it_records(topic):
    assert "/recorder" in allowed("topic", "subscribe", topic)


def test_nothing_is_denied_by_name_because_the_default_denies():
    groups = [
        group for name in ("topics", "services", "actions") for group in ElementTree.parse(POLICY).iter(name)
    ]
    assert groups
    assert all(value == "ALLOW" for group in groups for value in group.attrib.values())
