"""The executor of a node with an arm: it does not leave while a motion is under way."""

import threading

import rclpy

from sticker_uq.nodes.arm import ArmExecutor


def test_shutdown_waits_for_the_callback_that_runs(ros_domain, capfd):
    rclpy.init(args=[])
    node = rclpy.create_node("arm")
    executor = ArmExecutor()
    executor.add_node(node)
    entered, go, left = threading.Event(), threading.Event(), threading.Event()

    def move():
        entered.set()
        assert go.wait(60)
        left.set()

    node.create_timer(0.001, move)
    while not entered.is_set():
        executor.spin_once(timeout_sec=0.1)
    seen = []
    stopper = threading.Thread(target=lambda: (executor.shutdown(), seen.append(left.is_set())))
    stopper.start()
    stopper.join(0.2)
    go.set()
    stopper.join()
    node.destroy_node()
    rclpy.shutdown()
    assert seen == [True]
    assert "exception" not in capfd.readouterr().err
