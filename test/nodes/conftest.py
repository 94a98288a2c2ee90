# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that run nodes."""

from collections.abc import Iterator

import pytest

from sticker_uq.testing.arm import ArmBench
from sticker_uq.testing.bench import Bench, run_bench
from test.nodes.fake_perception import Script


@pytest.fixture
def bench(ros_domain: int) -> Iterator[Bench]:
    """A probe and an executor on a domain of their own."""
    with run_bench() as made:
        yield made


@pytest.fixture
def rig(bench: Bench) -> Iterator[ArmBench]:
    """An arm that waits patiently for a permit."""
    with ArmBench(bench) as made:
        yield made


@pytest.fixture
def hasty(bench: Bench) -> Iterator[ArmBench]:
    """An arm that hardly waits for a permit."""
    with ArmBench(bench, permit_wait_s=0.05) as made:
        yield made


@pytest.fixture
def script() -> Iterator[Script]:
    """What the fake perception does; nothing waits in it for ever."""
    made = Script()
    yield made
    made.go.set()
