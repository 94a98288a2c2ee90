"""Fixtures of the tests that run nodes."""

from collections.abc import Iterator

import pytest

from test.helpers import ros
from test.nodes.arm.arm_rig import Rig
from test.nodes.fake_perception import Script


@pytest.fixture
def bench(ros_domain: int) -> Iterator[ros.Bench]:
    """A probe and an executor on a domain of their own."""
    with ros.bench() as made:
        yield made


@pytest.fixture
def rig(bench: ros.Bench) -> Iterator[Rig]:
    """An arm that waits patiently for a permit."""
    made = Rig(bench)
    yield made
    made.close()


@pytest.fixture
def hasty(bench: ros.Bench) -> Iterator[Rig]:
    """An arm that hardly waits for a permit."""
    made = Rig(bench, permit_wait_s=0.05)
    yield made
    made.close()


@pytest.fixture
def script() -> Iterator[Script]:
    """What the fake perception does; nothing waits in it for ever."""
    made = Script()
    yield made
    made.go.set()
    made.load_go.set()
