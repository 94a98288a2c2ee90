# SPDX-License-Identifier: Apache-2.0
"""What the tests need beside this package: a ROS domain of their own, and a bench on it (docs/testing.md of sticker_uq)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sticker_uq.cell.transport import free_domain
from sticker_uq.testing.bench import Bench, local_environment, run_bench


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    """A probe and an executor on a domain of their own."""
    with free_domain() as domain:
        for name, value in local_environment(domain, tmp_path / "ros_log").items():
            monkeypatch.setenv(name, value)
        with run_bench() as made:
            yield made
