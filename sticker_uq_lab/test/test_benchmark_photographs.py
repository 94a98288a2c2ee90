# SPDX-License-Identifier: Apache-2.0
"""Photographs for the benchmarks come from repositories and packages, whole or not at all."""

import subprocess
from pathlib import Path

import cv2
import numpy as np
import pytest

from benchmarks.photographs import Source, download, load_photographs
from sticker_uq.scene import InvalidInput


def _git(folder: Path, *arguments: str) -> str:
    own = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", "-C", str(folder), *own, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The commit of github.com/owner/name, which is a folder of this machine."""
    folder = tmp_path / "origin"
    (folder / "pictures").mkdir(parents=True)
    for number in range(6):
        cv2.imwrite(str(folder / "pictures" / f"{number}.png"), np.full((4, 6, 3), number, np.uint8))
    (folder / "pictures" / "list.txt").write_text("no picture")
    _git(folder, "init", "--quiet")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message", "six pictures")
    config = tmp_path / "gitconfig"
    config.write_text(
        f'[url "file://{folder}"]\n insteadOf = https://github.com/owner/name\n'
        "[uploadpack]\n allowFilter = true\n allowAnySHA1InWant = true\n"
        f'[url "file://{tmp_path}/missing"]\n insteadOf = https://github.com/owner/missing\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    return _git(folder, "rev-parse", "HEAD")


def _source(entry: dict[str, object]) -> Source:
    usual = {"kind": "plain", "repository": "owner/name", "folder": "pictures", "count": 3, "licence": "MIT"}
    return Source.model_validate(usual | entry)


def test_a_repository_gives_files_evenly_spaced(tmp_path, repository):
    folder = tmp_path / "photographs"
    for _ in range(2):  # a second download changes nothing
        assert download(folder, _source({"commit": repository})) == 3
        found = [(kind, name, int(image[0, 0, 0])) for kind, name, image in load_photographs(folder)]
        assert found == [("plain", f"name-pictures-{n}.png", n) for n in (0, 2, 4)]
        assert [p.name for p in folder.iterdir()] == ["plain"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"repository": "owner/missing"}, r"owner/missing: git fetch failed .* check the network"),
        ({"commit": "0" * 40}, r"git fetch failed .* expected commit 000000000000"),
        ({"count": 7}, "6 pictures, expected at least 7"),
        ({"count": 0, "files": ("0.png", "9.png")}, "9.png missing"),
    ],
)
def test_what_cannot_be_had_is_an_error_and_nothing_is_left(tmp_path, repository, other, said):
    folder = tmp_path / "photographs"
    with pytest.raises(InvalidInput, match=said):
        download(folder, _source({"commit": repository} | other))
    assert [p for p in folder.rglob("*") if p.is_file()] == []
    with pytest.raises(InvalidInput, match="no photographs, run: python -m"):
        next(load_photographs(folder))
