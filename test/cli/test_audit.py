# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq audit`` as a person uses it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sticker_uq.cli import app
from sticker_uq.gate.audit import AuditLog
from sticker_uq.gate.audit.chain import _digest
from sticker_uq.scene import InvalidInput, Reason


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of three entries."""
    log = AuditLog(tmp_path / "audit", 10**6)
    log.add("start", {"node": "/supervisor", "pid": 7})
    said = [Reason("box_without_area", box=(1.0, 2.0, 1.0, 9.0)).to_dict()]
    log.add("answer", {"person": "Ada", "accepted": False, "reasons": said, "code": "FAILED"})
    log.add("stop", {"node": "/supervisor"})
    log.close()
    return tmp_path / "audit"


def head(folder: Path) -> str:
    return run("verify", folder).output.partition("hash ")[2][:64]


def test_a_whole_log_is_told_with_its_head(folder):
    result = run("verify", folder, "--head", head(folder))
    assert result.exit_code == 0
    assert "3 entries in 1 files, 0 torn" in result.output
    assert "cut off" not in result.output
    assert "only --head shows" in run("verify", folder).output


def test_a_changed_entry_is_named_and_fails(folder):
    path = folder / "audit-000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Ada", b"Eve"))
    result = run("verify", folder)
    assert result.exit_code == 1
    assert "NOT WHOLE  audit-000001.jsonl:2: not an entry as it was written" in result.output


def test_an_entry_of_many_levels_does_not_hide_the_others(folder):
    path = folder / "audit-000001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    content = {"number": 2, "time": "2026-01-31T00:00:00.000000000Z", "kind": "gate"}
    content |= {"previous": json.loads(lines[1])["hash"], "data": json.loads('{"a":' * 900 + "1" + "}" * 900)}
    nested = json.dumps(content | {"hash": _digest(content)}, sort_keys=True, separators=(",", ":")).encode()
    path.write_bytes(b"".join(lines[:2]) + nested + b"\n")
    assert run("verify", folder).exit_code == 0
    shown = run("show", folder)
    assert (shown.exit_code, len(shown.output.splitlines())) == (0, 3), shown.output[-200:]


def test_entries_are_shown_by_kind_and_from_the_end(folder):
    lines = run("show", folder).output.splitlines()
    assert [line.split()[2] for line in lines] == ["start", "answer", "stop"]
    answer = run("show", folder, "--kind", "answer").output
    assert 'accepted=false, code=FAILED, person=Ada, reasons=["a box has no area or is not finite"]' in answer
    assert [line.split()[0] for line in run("show", folder, "--last", 2).output.splitlines()] == ["1", "2"]


def test_what_is_named_like_a_file_of_the_log_must_be_one(folder):
    (folder / "audit-000002.jsonl").mkdir()
    for command in ("verify", "show"):
        result = run(command, folder)
        assert result.exit_code == 2
        assert "audit-000002.jsonl: is a folder, expected a regular file" in result.stderr
    with pytest.raises(InvalidInput, match="is a folder"):
        AuditLog(folder, 10**6)


def test_a_name_forges_no_line_and_no_colour(tmp_path):
    log = AuditLog(tmp_path / "audit", 10**6)
    log.add(
        "hold", {"person": "Eve\n      3 2026-01-01T00:00:00.000Z release        person=Ada\x1b[2J\u202e"}
    )
    log.add("answer", {"person": "\ud800", "reasons": [{"code": "above_limit", "box": "none", "values": 3}]})
    log.close()
    result = run("show", tmp_path / "audit")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) == 2
    assert result.output.isprintable() or set(result.output) - {"\n"} == set(
        filter(str.isprintable, result.output)
    )
    assert r"person=Eve\n" in result.output
    assert r"person=\ud800" in result.output
