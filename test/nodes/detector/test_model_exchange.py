# SPDX-License-Identifier: Apache-2.0
"""``select_model``: what may be asked for, what is kept, and the whole exchange in real processes with real weights."""

from __future__ import annotations

import gc
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from builtin_interfaces.msg import Time

from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.weights import load_into, packaged_weights, save_weights
from sticker_uq.gate import BlockReason
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.testing.bench import Bench, NodeProcess, overrides
from sticker_uq_msgs.msg import GateState, SceneAssessment
from sticker_uq_msgs.srv import SelectModel
from test.nodes.fake_perception import Script, detector_with

SSDLITE = "ssdlite320_mobilenet_v3_large"
OTHER = "ssd300_vgg16"


def parameter_file(folder: Path, **values: object) -> str:
    path = folder / "selected.yaml"
    path.write_text(yaml.safe_dump({"detector": {"ros__parameters": values}}))
    return str(path)


def ask(bench: Bench, **values: str) -> SelectModel.Response:
    return bench.call(SelectModel, "select_model", SelectModel.Request(**values))


def test_a_file_brings_all_parameters_of_its_model(bench: Bench, script: Script, tmp_path: Path) -> None:
    node = bench.add(detector_with(script)(parameter_overrides=overrides(dil_every=3)))
    assert node.start()
    file = parameter_file(tmp_path, model=OTHER, passes=7, dropout_rate=0.3, min_size=128)
    response = ask(bench, file=file)
    assert response.success, response.message
    assert response.message.startswith(f"{OTHER} (weights {response.model_hash[:12]}) replaces {SSDLITE}")
    settings = node.models.current().settings
    assert (settings.model, settings.passes, settings.dropout_rate, settings.min_size) == (OTHER, 7, 0.3, 128)
    assert settings.dil_every == 3, "what the file does not speak of stays"
    assert node.get_parameter("min_size").value == 128


@pytest.mark.parametrize(
    ("values", "extra", "reason"),
    [
        ({"model": "yolo"}, {}, "parameter model = 'yolo': unknown model 'yolo', expected one of"),
        ({"model": OTHER, "pases": 3}, {}, "unknown parameter pases; did you mean passes?"),
        ({"model": OTHER, "annotated_rate": 3.0}, {}, "unknown parameter annotated_rate"),
        ({"model": OTHER, "device": "cuda"}, {}, "device = 'cuda': expected 'auto', as it is now"),
        ({"model": OTHER}, {"model": OTHER}, "expected one of the two"),
        ({}, {}, "expected parameters of detector, found none"),
    ],
)
def test_a_file_that_cannot_be_used_leaves_the_old_model(
    bench: Bench, script: Script, tmp_path: Path, values: dict[str, Any], extra: dict[str, str], reason: str
) -> None:
    node = bench.add(detector_with(script)())
    assert node.start()
    before = node.models.current()
    response = ask(bench, file=parameter_file(tmp_path, **values), **extra)
    assert not response.success
    assert reason in response.message
    assert node.models.current() is before
    assert response.model_hash == before.model_hash


def test_a_file_that_is_missing_is_named(bench: Bench, script: Script) -> None:
    node = bench.add(detector_with(script)())
    assert node.start()
    assert "parameter file /nowhere.yaml: no such file" in ask(bench, file="/nowhere.yaml").message


def test_what_no_longer_serves_is_let_go_of(bench: Bench, script: Script) -> None:
    """At most two models are in memory: the one that serves and, until the exchange is over, another."""
    scenes = bench.collect(SceneAssessment, "scene")
    node = bench.add(detector_with(script)())
    assert node.start()
    camera = bench.image_publisher()
    served = []
    for number, model in enumerate((OTHER, SSDLITE, OTHER), 1):
        camera.publish(picture(number))
        bench.until(lambda n=number: len(scenes) == n, "a scene")
        served.append(weakref.ref(node.models.current()))
        assert ask(bench, model=model).success
    gc.collect()
    assert [one() for one in served] == [None] * 3


def picture(second: int) -> Any:
    return bgr_to_image(render(sample_scene(3), size=(160, 120)).image, Time(sec=second), "camera")


def test_a_real_detector_is_exchanged_while_it_works_and_the_gate_notices(
    bench: Bench, tmp_path: Path
) -> None:
    """Detector and supervisor are processes; an image is sent whenever the scene of the last one has come."""
    weights = tmp_path / "other.safetensors"
    model = build_model(SSDLITE)
    load_into(model, SSDLITE, packaged_weights(SSDLITE) or "")
    with torch.no_grad():
        next(model.head.parameters()).mul_(1.01)  # type: ignore[operator, union-attr]
    checksum = save_weights(model, weights, {"model": SSDLITE})
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(weights.read_bytes()[:-100])
    file = parameter_file(
        tmp_path, model=SSDLITE, weights=str(weights), passes=6, dropout_rate=0.3, dropout_site="out"
    )
    gates = bench.collect(GateState, "gate", qos.LATCHED)
    scenes: list[SceneAssessment] = []
    camera: list[Any] = []

    def on_scene(message: SceneAssessment) -> None:
        scenes.append(message)
        # the gate says MODEL_CHANGED until the next scene, which waits until that has been heard
        if message.model_hash == scenes[0].model_hash or said_so():
            camera[0].publish(picture(len(scenes) + 1))

    def said_so() -> bool:
        return any(g.reasons & BlockReason.MODEL_CHANGED for g in gates)

    bench.probe.create_subscription(SceneAssessment, "scene", on_scene, qos.RELIABLE)
    own = {"autostart": "true", "passes": "5", "threads": "1"}
    with (
        NodeProcess(
            "sticker_uq.nodes.supervisor.node", {"autostart": "true", "max_scene_age_s": "60.0"}
        ) as supervisor,
        NodeProcess("sticker_uq.nodes.detector.node", own) as detector,
    ):
        camera.append(bench.image_publisher())
        bench.until_hears("detector: images")
        camera[0].publish(picture(1))
        bench.until(lambda: len(scenes) >= 2 and gates, "scenes and a gate")
        old = scenes[-1].model_hash

        refused = ask(bench, model=SSDLITE, weights=str(broken))
        assert not refused.success
        assert str(broken) in refused.message
        assert [reason.code for reason in refused.reasons] == ["model_kept"]
        assert refused.message.startswith(f"{SSDLITE} (weights {old[:12]}) stays in use")
        assert refused.model_hash == old
        assert not any(gate.reasons & BlockReason.MODEL_CHANGED for gate in gates)

        answer = ask(bench, file=file)
        assert answer.success, answer.message
        assert answer.model_hash == checksum != old
        assert f"replaces {SSDLITE} (weights {old[:12]})" in answer.message
        bench.until(lambda: scenes[-1].model_hash == checksum, "a scene of the new weights")
        assert (scenes[-1].passes, scenes[-1].dropout_rate) == (6, pytest.approx(0.3))
        bench.until(said_so, "the gate to notice")
        noticed = next(g for g in gates if g.reasons & BlockReason.MODEL_CHANGED)
        assert not noticed.open
        assert {"weights_changed", "settings_changed"} <= {detail.code for detail in noticed.details}
        camera[0].publish(picture(len(scenes) + 1))
        bench.until(lambda: not gates[-1].reasons & BlockReason.MODEL_CHANGED, "scenes that agree again")
        # one process all the time: no scene is missing, and there is one change from the old model to the new one
        assert [s.sequence for s in scenes] == list(range(1, len(scenes) + 1))
        hashes = [s.model_hash for s in scenes]
        assert hashes == sorted(hashes, key=[old, checksum].index)
        assert detector.stop(signal.SIGINT) == 0
        assert supervisor.stop(signal.SIGINT) == 0
