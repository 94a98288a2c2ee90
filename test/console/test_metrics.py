# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of a cell, and that the rules and the dashboard ask for what there is."""

import datetime as dt
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

from sticker_uq.console.metrics import FRESH_S, CellMetrics
from sticker_uq.scene import InvalidInput

CONFIG = Path(__file__).parents[2] / "config" / "prometheus"
RULES = CONFIG / "rules.yaml"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"sticker_uq_{name}", labels)


STATUSES = {
    "supervisor: gate": {
        "permits": "n/a", "audit": "nan", "drift": "0.25", "image_age_ms": "180", "stop_demanded": "0", "removals": "3",
        "requests": "1",
    },
    "supervisor: policy": {"valid_until": "2027-01-31"},
    "supervisor: audit": {"lost": "0", "slowest_ms": "3"},
    "recorder: recording": {"lost": "0"},
    "detector: images": {"lost": "0"},
    "detector: perception": {"failed": "0", "assessed": "9", "memory_mb": "900"},
}  # fmt: skip


def busy(clock: Clock | None = None) -> CellMetrics:
    """After a permit that a newer scene revoked, one that was used, a question, its answer, a finished laptop, all statuses."""
    metrics = CellMetrics(["detector: lifecycle"], clock or Clock())
    metrics.gate("blocked", ["no_scene"])
    for state, closed in (
        ("permitted", []), ("removing", []), ("blocked", ["contradicted"]), ("permitted", []), ("verifying", ["verifying"])
    ):  # fmt: skip
        metrics.gate(state, closed)
    metrics.count_question("1")
    metrics.count_answers("1", ["remove", "keep", "keep"])
    metrics.done("clean")
    metrics.stages({"encode": 30.0, "sample": 40.0})
    for name, values in STATUSES.items():
        metrics.status(name, 1, values)
    return metrics


def test_counts_what_the_cell_did():
    registry = busy().registry
    assert value(registry, "permits_total") == 2
    assert value(registry, "permits_revoked_total", reason="contradicted") == 1
    assert value(registry, "permits_revoked_total", reason="verifying") == 0, "a permit that was used up"
    assert value(registry, "gate_state", state="verifying") == 1
    assert value(registry, "gate_state", state="blocked") == 0
    assert value(registry, "gate_closed", reason="no_scene") == 0
    assert value(registry, "answers_total", answer="keep") == 2
    assert value(registry, "questions_total") == 1
    assert value(registry, "laptops_total", result="clean") == 1
    assert value(registry, "removals_total", result="verified") == 3
    assert value(registry, "stage_seconds_sum", stage="sample") == pytest.approx(0.04)
    assert value(registry, "level", status="supervisor: gate") == 1
    assert value(registry, "value", status="supervisor: gate", key="drift") == 0.25
    assert value(registry, "value", status="supervisor: gate", key="permits") is None
    assert value(registry, "value", status="supervisor: gate", key="audit") is None
    end = dt.datetime(2027, 2, 1, tzinfo=dt.UTC).timestamp()
    assert value(registry, "value", status="supervisor: policy", key="valid_until") == end


def test_counters_are_there_before_their_first_event():
    """Of five answers ``increase()`` would show four if the first one made the counter."""
    before = {(s.name, *s.labels.values()) for f in CellMetrics().registry.collect() for s in f.samples}
    after = {(s.name, *s.labels.values()) for f in busy().registry.collect() for s in f.samples}
    counters = {key for key in after if key[0].endswith("_total")}
    assert counters
    assert counters <= before


def test_the_time_to_an_answer_is_that_of_its_own_question():
    clock = Clock()
    metrics = CellMetrics(clock=clock)
    metrics.count_question("1")
    metrics.count_question("2")
    clock.now += 30
    metrics.count_answers("1", ["keep"])  # late: another question stands
    assert value(metrics.registry, "answer_seconds_count") == 0
    metrics.count_answers("2", ["keep"])
    metrics.count_answers("2", ["keep"])
    assert value(metrics.registry, "answer_seconds_count") == 1
    assert value(metrics.registry, "answer_seconds_sum") == 30


def test_what_is_silent_is_absent_and_its_age_is_told():
    clock = Clock()
    metrics = busy(clock)
    clock.now += FRESH_S
    metrics.status("detector: perception", 0, {"failed": "0"})
    clock.now += 1
    told = {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if not sample.name.endswith(("_total", "_created", "_bucket", "_sum", "_count"))
    }
    silent = {"gate", "detector: lifecycle", *STATUSES} - {"detector: perception"}
    assert told == {
        **{("sticker_uq_age_seconds", source): FRESH_S + 1 for source in silent},
        ("sticker_uq_age_seconds", "detector: perception"): 1,
        ("sticker_uq_level", "detector: perception"): 0,
        ("sticker_uq_value", "detector: perception", "failed"): 0,
    }
    metrics.gate("blocked", ["held"])
    assert value(metrics.registry, "gate_state", state="blocked") == 1


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


def number(status: str, key: str) -> str:
    return f'sticker_uq_value{{status="{status}", key="{key}"}}'


GATE, PERCEPTION, AUDIT = "supervisor: gate", "detector: perception", "supervisor: audit"
LAPTOPS, QUESTIONS = 'sticker_uq_laptops_total{result="clean"}', "sticker_uq_questions_total"
DAY_S = 86400
ALERTS: dict[str, list[tuple[dict[str, str], dict[str, str]]]] = {
    "CellNotMonitored": [({'up{job="sticker_uq"}': "0x60"}, {'up{job="sticker_uq"}': "0x2 1x60"})],
    "CellSilent": [
        ({'sticker_uq_age_seconds{source="gate"}': "0+15x60"}, {'sticker_uq_age_seconds{source="gate"}': "0.1x60"})
    ],
    "CellFault": [({'sticker_uq_gate_state{state="fault"}': "1x60"}, {'sticker_uq_gate_state{state="fault"}': "0x60"})],
    "ArmDoesNotStop": [({number(GATE, "stop_demanded"): "1x60"}, {number(GATE, "stop_demanded"): "0x60"})],
    "QuestionNotAnswered": [
        (
            {'sticker_uq_gate_state{state="intervention"}': "1x60"},
            {'sticker_uq_gate_state{state="intervention"}': "0x30 1x10 0 1x19"},
        )
    ],
    "PerceptionTooSlow": [({number(GATE, "image_age_ms"): "1200x60"}, {number(GATE, "image_age_ms"): "300x59 1200"})],
    "PerceptionFails": [
        (
            {number(PERCEPTION, "failed"): "0+1x60", number(PERCEPTION, "assessed"): "0+50x60"},
            {number(PERCEPTION, "failed"): "0x50 1x10", number(PERCEPTION, "assessed"): "0+50x60"},
        )
    ],
    "ImagesLost": [
        ({number("detector: images of left", "lost"): "7x50 8x10"}, {number("detector: images", "lost"): "7x60"})
    ],
    "UnlikeTheCalibration": [({number(GATE, "drift"): "0.6x60"}, {number(GATE, "drift"): "0.4x60"})],
    "PolicyExpires": [
        (
            {number("supervisor: policy", "valid_until"): f"{13 * DAY_S}x60"},
            {number("supervisor: policy", "valid_until"): f"{16 * DAY_S}x60"},
        )
    ],
    "AuditBehind": [
        ({number(AUDIT, "lost"): "1x60"}, {number(AUDIT, "lost"): "0x60", number(AUDIT, "slowest_ms"): "20x60"}),
        ({number(AUDIT, "slowest_ms"): "600x60"}, {'sticker_uq_level{status="supervisor: audit"}': "0x60"}),
        ({'sticker_uq_level{status="supervisor: audit"}': "2x60"}, {}),
    ],
    "RecordingLost": [
        ({number("recorder: recording", "lost"): "1x60"}, {number("recorder: recording", "lost"): "0x60"})
    ],
}  # fmt: skip
SLOW: dict[str, list[tuple[dict[str, str], dict[str, str]]]] = {
    "MemoryGrows": [
        ({number(PERCEPTION, "memory_mb"): "900x210 1500x30"}, {number(PERCEPTION, "memory_mb"): "900+1x240"})
    ],
    "TooManyQuestions": [
        (
            {QUESTIONS: "0+1x191 194+3x48", LAPTOPS: "0+10x240"},
            {QUESTIONS: "0+1x191 194+3x48", LAPTOPS: "0+10x191 1940+30x48"},
        )
    ],
}
"""Those that compare days; one sample an hour."""


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: apt install prometheus")
def test_every_rule_fires_when_it_should_and_only_then(tmp_path):
    named = [
        rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    assert sorted([*ALERTS, *SLOW]) == sorted(named)
    for interval, cases, at in (("15s", ALERTS, "15m"), ("1h", SLOW, "240h")):
        tests = [
            {
                "interval": interval,
                "name": f"{name} {fires}",
                "input_series": [{"series": key, "values": values} for key, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})',
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                ],
            }
            for name, pairs in cases.items()
            for pair in pairs
            for fires, series in zip((True, False), pair, strict=True)
        ]
        written = tmp_path / f"{interval}.yaml"
        written.write_text(
            yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": tests})
        )
        ran = subprocess.run(["promtool", "test", "rules", str(written)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
