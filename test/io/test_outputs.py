# SPDX-License-Identifier: Apache-2.0
"""Places of results are checked before the work, and nothing is removed that an earlier run did not write."""

import os
from pathlib import Path

import pytest

from sticker_uq.io.files import check_output_file, check_output_folder, remove_earlier_result, whole_folder
from sticker_uq.scene import InvalidInput


@pytest.fixture
def read_only(monkeypatch):
    """No folder can be written to: tests may run as root, whom no permission stops."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)


def test_a_file_can_be_written_to_a_folder_that_exists(tmp_path):
    check_output_file(tmp_path / "new.json")
    (tmp_path / "old.json").write_text("{}")
    check_output_file(tmp_path / "old.json")
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name, message in (
        (".", "is a folder, expected the name of a file"),
        ("absent/a.json", "the folder .*absent does not exist"),
        ("file/a.json", "the folder .*file does not exist"),
        ("pipe", "is no regular file"),
        ("null", "is no regular file"),
    ):
        with pytest.raises(InvalidInput, match=message):
            check_output_file(tmp_path / name, "--out")


def test_a_folder_may_be_new_at_any_depth(tmp_path):
    check_output_folder(tmp_path / "a" / "b" / "c", empty=True)
    check_output_folder(tmp_path, empty=True)
    assert not any(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    check_output_folder(tmp_path)
    with pytest.raises(InvalidInput, match="not an empty folder"):
        check_output_folder(tmp_path, empty=True)


def test_a_folder_below_a_file_or_a_broken_link_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "broken").symlink_to("nowhere")
    for name in ("file", "file/a", "broken", "broken/a"):
        with pytest.raises(InvalidInput, match="is no folder"):
            check_output_folder(tmp_path / name)


def test_a_place_without_permission_is_refused(tmp_path, read_only):
    for check, path in (
        (check_output_file, tmp_path / "a.json"),
        (check_output_folder, tmp_path),
        (check_output_folder, tmp_path / "a" / "b"),
    ):
        with pytest.raises(InvalidInput, match=f"no permission to write to {tmp_path}"):
            check(path)


@pytest.fixture
def earlier(tmp_path):
    (tmp_path / "bag").mkdir()
    for name in ("truth.json", "bag/a.mcap", "bag/metadata.yaml"):
        (tmp_path / name).write_text("old")
    return tmp_path


PATTERNS = ("truth.json", "bag/*.mcap", "bag/metadata.yaml", "absent.html")


def test_what_an_earlier_run_wrote_is_removed(earlier):
    (earlier / "bag" / "a.mcap").unlink()
    (earlier / "bag" / "metadata.yaml").unlink()  # of a run that ended before it wrote
    remove_earlier_result(earlier, PATTERNS)
    assert list(earlier.iterdir()) == []


@pytest.mark.parametrize("name", ["notes.txt", "bag/thesis.pdf", "photos/1.jpg"])
def test_nothing_is_removed_beside_anything_else(earlier, name):
    (earlier / name).parent.mkdir(exist_ok=True)
    (earlier / name).write_text("mine")
    before = sorted(earlier.rglob("*"))
    with pytest.raises(
        InvalidInput, match=rf"--out x: holds {name.split('/')[0]}.*, which no earlier run wrote"
    ):
        remove_earlier_result(earlier, PATTERNS, "--out x")
    assert sorted(earlier.rglob("*")) == before


def test_links_are_left_alone(earlier, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "a.mcap").write_text("precious")
    (earlier / "bag" / "b.mcap").symlink_to(elsewhere / "a.mcap")
    with pytest.raises(InvalidInput, match=r"holds bag/b\.mcap"):
        remove_earlier_result(earlier, PATTERNS)
    (earlier / "bag" / "b.mcap").unlink()
    for file in (earlier / "bag").iterdir():
        file.unlink()
    (earlier / "bag").rmdir()
    (earlier / "bag").symlink_to(elsewhere)
    with pytest.raises(InvalidInput, match="holds bag"):
        remove_earlier_result(earlier, PATTERNS)
    assert (elsewhere / "a.mcap").read_text() == "precious"


@pytest.mark.parametrize("mounted", [False, True])
def test_a_whole_folder_may_be_a_link_to_an_empty_one_and_a_mount_point(tmp_path, monkeypatch, mounted):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr(Path, "is_mount", lambda _: mounted)
    with whole_folder(tmp_path / "link") as folder:
        (folder / "images").mkdir()
        (folder / "annotations.json").write_text("{}")
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == ["annotations.json", "images"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
    assert (tmp_path / "link").is_symlink()
