# SPDX-License-Identifier: Apache-2.0
"""The executor of a node with an arm: it does not leave while a motion is under way."""

import gc
import threading

import pytest
import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.task import Future

from sticker_uq.nodes.arm.executor import THREADS, ArmExecutor
from sticker_uq.testing.bench import NodeProcess


@pytest.fixture
def arm(ros_domain):
    """Makes a node and the executor that it is in."""
    rclpy.init(args=[])
    node = rclpy.create_node("arm")

    def made(kind=ArmExecutor):
        executor = kind()
        executor.add_node(node)
        return node, executor

    yield made
    node.destroy_node()
    rclpy.shutdown()


def test_shutdown_waits_for_the_callback_that_runs(arm, capfd):
    node, executor = arm()
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
    assert seen == [True]
    assert "exception" not in capfd.readouterr().err


def test_a_goal_accepted_during_the_shutdown_is_left_without_complaint(ros_domain):
    with NodeProcess("test.nodes.arm.closing_arm") as process:
        assert process.wait() == 0
        assert "accepted" in process.output
        assert "never awaited" not in process.output


def test_it_spins_until_a_future_is_done(arm):
    node, executor = arm()
    future = Future()
    node.create_timer(0.001, lambda: future.set_result("done"))
    executor.spin_until_future_complete(future)
    assert future.result() == "done"
    # done by another thread while there is nothing to call
    other = Future()
    waits = threading.Event()
    executor.wait_for_ready_callbacks = _telling(executor.wait_for_ready_callbacks, waits)
    node.destroy_timer(next(iter(node.timers)))
    finisher = threading.Thread(target=lambda: (waits.wait(60), other.set_result("done")))
    finisher.start()
    executor.spin_until_future_complete(other)
    finisher.join()
    assert other.result() == "done"
    executor.shutdown()


def _telling(wait, event):
    def told(*arguments):
        event.set()
        return wait(*arguments)

    return told


class CountingExecutor(ArmExecutor):
    handed_out = 0

    def wait_for_ready_callbacks(self, *arguments, **options):
        ready = super().wait_for_ready_callbacks(*arguments, **options)
        self.handed_out += 1
        return ready


def test_a_callback_is_handed_out_once(arm):
    """While every thread is busy the next callback waits; copies of it would queue up before all others."""
    node, executor = arm(CountingExecutor)
    go, entered = threading.Event(), threading.Semaphore(0)

    def move():
        entered.release()
        assert go.wait(60)

    timers = [
        node.create_timer(0.001, move, callback_group=ReentrantCallbackGroup()) for _ in range(THREADS + 2)
    ]
    spinner = threading.Thread(target=executor.spin)
    spinner.start()
    for _ in range(THREADS):
        assert entered.acquire(timeout=60)
    spinner.join(0.2)
    handed_out = executor.handed_out
    go.set()
    executor.shutdown()
    spinner.join()
    assert THREADS <= handed_out <= len(timers)


def test_what_becomes_ready_during_the_shutdown_is_not_begun(arm, recwarn):
    node, executor = arm()
    go, entered, begun = threading.Event(), threading.Event(), threading.Event()

    def move():
        entered.set()
        assert go.wait(60)

    node.create_timer(0.001, move)
    while not entered.is_set():
        executor.spin_once(timeout_sec=0.1)
    stopper = threading.Thread(target=executor.shutdown)
    stopper.start()
    while not executor._closed:
        stopper.join(0.001)
    node.create_timer(0.001, begun.set, callback_group=ReentrantCallbackGroup())
    spinner = threading.Thread(target=executor.spin)
    spinner.start()
    spinner.join(0.1)
    go.set()
    stopper.join()
    spinner.join()
    assert not begun.is_set()
    del executor, node
    gc.collect()
    assert not [str(one.message) for one in recwarn if "never awaited" in str(one.message)]


class SlowWaitExecutor(ArmExecutor):
    """Takes long over what to wait for, so that a shutdown comes meanwhile."""

    def __init__(self):
        super().__init__()
        self.waits = threading.Event()

    def can_execute(self, entity):
        self.waits.set()
        threading.Event().wait(0.02)
        return super().can_execute(entity)


def test_a_shutdown_waits_for_another_thread_that_spins(arm):
    _, executor = arm(SlowWaitExecutor)
    raised = []

    def spin():
        try:
            executor.spin()
        except Exception as error:  # noqa: BLE001
            raised.append(error)

    spinner = threading.Thread(target=spin)
    spinner.start()
    assert executor.waits.wait(60)
    executor.shutdown()
    spinner.join()
    assert raised == []


def test_what_a_callback_raises_reaches_who_spins(arm):
    node, executor = arm()

    def fail():
        raise RuntimeError("the driver is gone")

    node.create_timer(0.001, fail)
    with pytest.raises(RuntimeError, match="the driver is gone"):
        executor.spin()
    executor.shutdown()
