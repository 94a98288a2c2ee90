"""Fixtures of the tests that run nodes."""

from collections.abc import Iterator

import pytest

from test.helpers import ros


@pytest.fixture
def bench(ros_domain: int) -> Iterator[ros.Bench]:
    """A probe and an executor on a domain of their own."""
    with ros.bench() as made:
        yield made
