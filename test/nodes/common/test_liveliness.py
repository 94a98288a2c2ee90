# SPDX-License-Identifier: Apache-2.0
"""The death of a publisher is noticed, however fast it came and went."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import rclpy
from rclpy.context import Context
from rclpy.duration import Duration
from rclpy.node import Node

from sticker_uq.nodes.common import liveliness, qos
from sticker_uq.nodes.common.liveliness import subscribe_with_liveliness
from sticker_uq.testing.bench import Bench
from sticker_uq_msgs.msg import GateState


class Watched:
    """A subscription of the bench's probe, and how often one of its publishers was gone."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.gone, self.heard = bench, 0, 0
        self.subscription = subscribe_with_liveliness(
            bench.probe, GateState, "gate", self._hear, qos.GATE_SUBSCRIPTION, self._lose
        )

    def _hear(self, _: GateState) -> None:
        self.heard += 1

    def _lose(self) -> None:
        self.gone += 1

    def arrived(self) -> bool:
        """Whether a message is here, taken without spinning: no event is taken with it."""
        return self.subscription.handle.take_message(GateState, False) is not None


@pytest.fixture
def watched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Watched:
    for profile in (
        qos.GATE,
        qos.GATE_SUBSCRIPTION,
    ):  # a busy machine stands still for longer than their leases
        monkeypatch.setattr(profile, "liveliness_lease_duration", Duration(seconds=60))
    return Watched(bench)


@pytest.fixture
def elsewhere() -> Iterator[Node]:
    """A node of another participant, as of another process."""
    context = Context()
    rclpy.init(context=context)
    node = Node("elsewhere", context=context, enable_rosout=False)
    yield node
    node.destroy_node()
    context.try_shutdown()


def test_a_publisher_that_is_destroyed_is_gone(watched, elsewhere):
    publisher = elsewhere.create_publisher(GateState, "gate", qos.GATE)
    watched.bench.until(publisher.get_subscription_count, "the subscription is found")
    publisher.publish(GateState())
    watched.bench.until(lambda: watched.heard, "a message")
    assert watched.gone == 0
    elsewhere.destroy_publisher(publisher)
    watched.bench.until(lambda: watched.gone, "its end is noticed")


def test_a_publisher_that_came_and_went_before_anybody_asked_is_gone(watched, elsewhere, monkeypatch):
    """Its permit may be executed after its death."""
    publisher = elsewhere.create_publisher(GateState, "gate", qos.GATE)
    bench = watched.bench
    with monkeypatch.context() as patch:
        patch.setattr(bench.executor, "spin_once", lambda **_: None)
        bench.until(publisher.get_subscription_count, "the subscription is found")
        publisher.publish(GateState())
        bench.until(watched.arrived, "a message")
        elsewhere.destroy_publisher(publisher)
        bench.until(lambda: not bench.probe.count_publishers("gate"), "the publisher is gone")
    bench.until(lambda: watched.gone, "its end is noticed")


def test_a_publisher_of_the_same_process_is_gone_although_the_graph_has_it_still(watched, monkeypatch):
    publisher = watched.bench.publisher_matched(GateState, "gate", qos.GATE)
    publisher.publish(GateState())
    watched.bench.until(lambda: watched.heard, "a message")
    monkeypatch.setattr(liveliness, "_is_published_here", lambda *_: True)
    watched.bench.probe.destroy_publisher(publisher)
    watched.bench.until(lambda: watched.gone, "its end is noticed")


@pytest.mark.parametrize(
    ("alive", "not_alive", "here", "lost"),
    [
        pytest.param(1, 0, False, False, id="appeared"),
        pytest.param(-1, 1, False, True, id="died"),
        pytest.param(-1, 1, True, False, id="silent in the same process"),
        pytest.param(-1, 0, True, True, id="destroyed in the same process"),
        pytest.param(0, -1, False, False, id="dead for long and forgotten now"),
        pytest.param(1, -1, False, False, id="alive again"),
        pytest.param(0, 1, False, True, id="appeared and died, or one for another that died"),
        pytest.param(0, 0, False, True, id="appeared and was destroyed"),
        pytest.param(0, 0, True, False, id="wrote and fell silent in the same process"),
    ],
)
def test_what_an_event_says(alive, not_alive, here, lost, monkeypatch):
    made: list[Any] = []
    node = SimpleNamespace(
        resolve_topic_name=str,
        create_subscription=lambda *_, event_callbacks, **__: made.append(event_callbacks),
    )
    monkeypatch.setattr(liveliness, "_is_published_here", lambda *_: here)
    calls: list[bool] = []
    subscribe_with_liveliness(node, GateState, "gate", print, qos.GATE, lambda: calls.append(True))
    made[0].liveliness(SimpleNamespace(alive_count_change=alive, not_alive_count_change=not_alive))
    assert bool(calls) == lost
