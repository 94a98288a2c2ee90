# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of a cell, and that the rules and the dashboard ask for what there is."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sticker_uq.console.metrics import CellMetrics
from sticker_uq.scene import InvalidInput

CONFIG = Path(__file__).parents[2] / "config" / "prometheus"
RULES = CONFIG / "rules.yaml"


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"sticker_uq_{name}", labels)


def busy() -> CellMetrics:
    """After a permit that a newer scene revoked, one that was used, an answer and a status."""
    metrics = CellMetrics()
    metrics.gate("blocked", ["no_scene"])
    for state, closed in (
        ("permitted", []), ("removing", []), ("blocked", ["contradicted"]), ("permitted", []), ("verifying", ["verifying"])
    ):  # fmt: skip
        metrics.gate(state, closed)
    metrics.answered(["remove", "keep", "keep"])
    metrics.stages({"encode": 30.0, "sample": 40.0})
    values = {"drift": "0.25", "image_age_ms": "180", "requests": "3", "permits": "n/a", "audit": "nan"}
    metrics.status("supervisor: gate", 1, values)
    return metrics


def test_counts_what_the_cell_did():
    registry = busy().registry
    assert value(registry, "permits_total") == 2
    assert value(registry, "permits_revoked_total", reason="contradicted") == 1
    assert value(registry, "permits_revoked_total", reason="verifying") is None, "a permit that was used up"
    assert value(registry, "gate_state", state="verifying") == 1
    assert value(registry, "gate_state", state="blocked") == 0
    assert value(registry, "gate_closed", reason="no_scene") == 0
    assert value(registry, "answers_total", answer="keep") == 2
    assert value(registry, "stage_seconds_sum", stage="sample") == pytest.approx(0.04)
    assert value(registry, "level", status="supervisor: gate") == 1
    assert value(registry, "value", status="supervisor: gate", key="drift") == 0.25
    assert value(registry, "value", status="supervisor: gate", key="permits") is None
    assert value(registry, "value", status="supervisor: gate", key="audit") is None


def test_they_are_served_until_they_are_closed_and_a_taken_port_is_named():
    metrics = busy()
    metrics.serve("127.0.0.1", 0)
    with pytest.raises(InvalidInput, match=f"metrics_port {metrics.port}: cannot be listened on"):
        CellMetrics().serve("127.0.0.1", metrics.port)
    address = f"http://127.0.0.1:{metrics.port}/metrics"
    with urllib.request.urlopen(address, timeout=60) as reply:
        families = {family.name for family in text_string_to_metric_families(reply.read().decode())}
    assert {"sticker_uq_gate_state", "sticker_uq_permits", "sticker_uq_stage_seconds"} <= families
    metrics.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=60)


def asked() -> list[str]:
    """The expressions of rules and dashboard."""
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = json.loads((CONFIG / "grafana.json").read_text())["panels"]
    return [*rules, *(target["expr"] for panel in panels for target in panel["targets"])]


@pytest.mark.parametrize("expression", asked())
def test_what_is_asked_for_exists(expression):
    samples = [sample for family in busy().registry.collect() for sample in family.samples]
    for name, labels in re.findall(r"(sticker_uq_\w+|up)(?:\{([^}]*)\})?", expression):
        if name == "up":
            continue
        wanted = {key: text for key, text in re.findall(r'(\w+)="([^"]*)"', labels) if key != "instance"}
        assert any(sample.name == name and wanted.items() <= sample.labels.items() for sample in samples), (
            name
        )


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: apt install prometheus")
def test_prometheus_takes_the_rules():
    subprocess.run(["promtool", "check", "rules", str(RULES)], check=True)
