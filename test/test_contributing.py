# SPDX-License-Identifier: Apache-2.0
"""The diffs in docs/contributing.md apply to the code as it is."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DIFFS = re.findall(
    r"```diff\n(.*?)```", (ROOT / "docs/contributing.md").read_text(encoding="utf-8"), re.DOTALL
)


def files_of(diff: str) -> set[str]:
    return set(re.findall(r"^(?:---|\+\+\+) [ab]/(.+)$", diff, re.MULTILINE))


def test_there_is_an_example_of_each_seam() -> None:
    assert [len(files_of(diff)) for diff in DIFFS] == [3, 3, 3]


@pytest.mark.parametrize("diff", DIFFS, ids=["detector", "metric", "block_reason"])
def test_an_example_applies_and_compiles(diff: str, tmp_path: Path) -> None:
    for name in files_of(diff):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tmp_path / name)
    # outside of any repository, where git would skip paths that it does not know
    applied = subprocess.run(
        ["git", "apply", "--verbose", "-"], input=diff, cwd=tmp_path, capture_output=True, text=True
    )
    assert applied.returncode == 0, applied.stderr
    for name in files_of(diff):
        text = (tmp_path / name).read_text(encoding="utf-8")
        if name.endswith(".py"):
            compile(text, name, "exec")
