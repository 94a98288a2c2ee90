# SPDX-License-Identifier: Apache-2.0
"""The life of a detector node: transitions, and another model or other parameters while it works."""

import gc
import weakref
from typing import Any

from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from sticker_uq.testing.bench import Bench
from test.nodes.detector.detector_bench import OTHER, Watched, active, image, seconds


def test_a_second_life_after_cleanup(bench, script):
    detector = Watched(bench, script)
    scenes, camera = detector.scenes, detector.camera
    detector.sees(image(1))
    for transition in ("deactivate", "cleanup"):
        assert bench.transition("detector", transition)
    bench.until(lambda: not camera.get_subscription_count(), "the end of the subscription")
    camera.publish(image(2))
    for transition in ("configure", "activate"):
        assert bench.transition("detector", transition)
    bench.until_heard(camera)
    detector.sees(image(3))
    assert seconds(scenes) == [1, 3]
    assert scenes[1].sequence == 1
    assert script.warm_ups == 2


def test_deactivation_does_not_wait_for_ever_and_drops_what_comes_late(bench, script, monkeypatch):
    monkeypatch.setattr("sticker_uq.nodes.detector.node.STOP_TIMEOUT_S", 0.2)
    script.hold = True
    detector = Watched(bench, script)
    scenes, camera = detector.scenes, detector.camera
    camera.publish(image(1))
    bench.until(script.busy.is_set, "the worker at work")
    assert bench.transition("detector", "deactivate")
    assert bench.transition("detector", "activate")
    bench.until_heard(camera)
    camera.publish(image(2))
    script.hold = False
    script.go.set()
    bench.until(lambda: scenes, "the scene of the second worker")
    assert script.assessed == [1_000_000_007, 2_000_000_007]
    assert seconds(scenes) == [2]


def set_parameter(bench: Bench, name: str, value: object) -> Any:
    request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
    return bench.call(SetParameters, "detector/set_parameters", request).results[0]


def test_parameters_of_perception_change_while_it_works(bench, script):
    """The old perception serves until the new one is ready, is let go of then, and goes on where the new one cannot be loaded."""
    detector = Watched(bench, script)
    scenes, node = detector.scenes, detector.node
    before = weakref.ref(node.models.current())
    script.hold_load = True
    assert set_parameter(bench, "passes", 7).successful
    assert "while a model is being loaded" in set_parameter(bench, "passes", 11).reason
    detector.sees(image(1))
    script.load_go.set()
    bench.until(lambda: not node.models.busy, "the new perception")
    detector.sees(image(2))
    assert [s.passes for s in scenes] == [20, 7]
    gc.collect()
    assert before() is None
    for name, value in (("device", "cuda"), ("model", OTHER)):
        refused = set_parameter(bench, name, value)
        assert not refused.successful
        assert f"{name} cannot be changed while detector is active" in refused.reason
    script.load_error = RuntimeError("no")
    assert set_parameter(bench, "passes", 9).successful
    bench.until(lambda: not node.models.busy, "the failure")
    assert node.get_parameter("passes").value == 7, "the parameter tells what serves"
    assert detector.sees(image(3)).passes == 7


def test_cleanup_while_a_perception_is_loaded(bench, script):
    node = active(bench, script)
    script.hold_load = True
    assert set_parameter(bench, "passes", 7).successful
    assert bench.transition("detector", "deactivate")
    assert bench.transition("detector", "cleanup")
    script.load_go.set()
    bench.until(lambda: not node.models.busy, "the end of it")
    assert node.models.serving is None
