# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/testing.md run."""

import re
from pathlib import Path

import pytest

from sticker_uq.testing.bench import Bench

DOCUMENT = Path(__file__).parents[3] / "docs" / "testing.md"
FIXTURE, *EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


def names_of(source: str) -> dict[str, object]:
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(source, str(DOCUMENT), "exec"), names)
    return names


@pytest.mark.parametrize("source", EXAMPLES, ids=["arm", "detector"])
def test_the_example_passes(bench, source):
    (test,) = [value for name, value in names_of(source).items() if name.startswith("test_")]
    test(bench)


def test_the_fixture_opens_a_bench_on_a_domain_of_its_own(ros_domain, monkeypatch, tmp_path):
    bench = names_of(FIXTURE)["bench"].__wrapped__(monkeypatch, tmp_path)
    assert isinstance(next(bench), Bench)
    bench.close()
