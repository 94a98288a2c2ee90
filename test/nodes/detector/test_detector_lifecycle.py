# SPDX-License-Identifier: Apache-2.0
"""The life of a detector node: transitions, and parameters while it works."""

from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

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


def test_parameters_of_perception_are_locked_while_it_is_loaded(bench, script):
    node = active(bench, script)
    for name, value in (("passes", 7), ("device", "cuda"), ("model", OTHER)):
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        refused = bench.call(SetParameters, "detector/set_parameters", request).results[0]
        assert not refused.successful
        assert f"{name} cannot be changed while detector is configured: clean it up first" in refused.reason
    assert node.get_parameter("passes").value == 20
