# SPDX-License-Identifier: Apache-2.0
"""Whatever is done to the lines of an audit log is found; what is cut off at its end is found with the head."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import sticker_uq.gate.audit.chain as chain_module
from sticker_uq.gate.audit import GENESIS, AuditLog, Entry, entries, verify
from sticker_uq.gate.audit.chain import seal_of
from sticker_uq.scene import InvalidInput, Reason

DATA = st.dictionaries(
    st.text(max_size=5),
    st.one_of(st.integers(), st.floats(), st.text(max_size=10), st.lists(st.booleans(), max_size=3)),
    max_size=4,
)
FILES = st.lists(st.lists(DATA, min_size=1, max_size=4), min_size=1, max_size=3)
_folders = itertools.count()


def chain(contents: list[list[dict[str, Any]]]) -> list[list[bytes]]:
    """The lines of the files of a log with these contents."""
    files, number, head = [], 0, GENESIS
    for content in contents:
        lines = []
        for data in content:
            entry = Entry.create(number, head, "gate", data, 1_700_000_000_000_000_000 + number)
            lines.append(entry.line())
            number, head = number + 1, entry.hash
        files.append(lines)
    return files


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return tmp_path_factory.mktemp("chains")


def written(place: Path, files: list[list[bytes]]) -> Path:
    folder = place / str(next(_folders))
    folder.mkdir()
    for number, lines in enumerate(files, 1):
        (folder / f"audit-{number:06d}.jsonl").write_bytes(b"".join(lines))
    return folder


def head_of(files: list[list[bytes]]) -> str:
    return str(json.loads(files[-1][-1])["hash"])


@given(FILES)
@hypothesis_settings(max_examples=25)
def test_an_untouched_log_is_whole_and_tells_its_contents(place, contents):
    files = chain(contents)
    folder = written(place, files)
    found = verify(folder, head=head_of(files))
    assert found.findings == []
    assert (found.files, found.entries) == (len(files), sum(map(len, files)))
    assert found.head == head_of(files)
    assert [e.number for e in entries(folder)] == list(range(found.entries))
    assert [len(e.data) for e in entries(folder)] == [len(d) for content in contents for d in content]


@given(FILES, st.data())
@hypothesis_settings(max_examples=80)
def test_any_change_is_found(place, contents, data):
    files = chain(contents)
    flat = [line for lines in files for line in lines]
    head = head_of(files)
    where = data.draw(st.integers(0, len(flat) - 1), "line")
    how = data.draw(st.sampled_from(["edit", "rewrite", "remove", "repeat", "swap", "cut", "forge"]), "how")
    line = flat[where]
    if how == "edit":  # one byte of one line
        at = data.draw(st.integers(0, len(line) - 1))
        byte = data.draw(st.integers(0, 255).filter(lambda b: b != line[at]))
        flat[where] = line[:at] + bytes([byte]) + line[at + 1 :]
    elif how == "rewrite":  # the same JSON in other words
        flat[where] = json.dumps(json.loads(line), indent=None).encode() + b"\n"
    elif how == "remove":
        del flat[where]
        assume(flat)
    elif how == "repeat":
        flat.insert(where, line)
    elif how == "swap":
        other = data.draw(st.integers(0, len(flat) - 1).filter(lambda o: o != where)) if len(flat) > 1 else 0
        assume(other != where)
        flat[where], flat[other] = flat[other], line
    elif how == "cut":  # inside a line
        flat[where] = line[: data.draw(st.integers(1, len(line) - 1))]
    else:  # an entry of its own making, with a good hash of its own
        number, previous = json.loads(line)["number"], json.loads(line)["previous"]
        flat[where] = Entry.create(number, previous, "gate", {"forged": True}, 0).line()
    assert not verify(written(place, [flat]), head=head).whole


@given(FILES, st.data())
@hypothesis_settings(max_examples=25)
def test_a_missing_file_is_found(place, contents, data):
    files = chain(contents)
    assume(len(files) > 1)
    folder = written(place, files)
    gone = data.draw(st.integers(1, len(files)))
    (folder / f"audit-{gone:06d}.jsonl").unlink()
    assert not verify(folder, head=head_of(files)).whole
    if gone < len(files):
        assert not verify(folder).whole


@given(FILES, st.data())
@hypothesis_settings(max_examples=25)
def test_an_end_that_was_cut_off_is_found_with_the_published_head_only(place, contents, data):
    files = chain(contents)
    flat = [line for lines in files for line in lines]
    keep = data.draw(st.integers(1, len(flat)))
    folder = written(place, [flat[:keep]])
    assert verify(folder).whole
    assert verify(folder, head=head_of(files)).whole == (keep == len(flat))


def test_files_taken_away_are_vouched_for_by_the_hash_of_their_end(place):
    files = chain([[{}, {}], [{}, {}]])
    folder = written(place, files)
    (folder / "audit-000001.jsonl").unlink()
    [finding] = verify(folder).findings
    assert "begins with entry 2" in str(finding)
    assert verify(folder, since=head_of(files[:1])).whole


def test_an_edited_entry_cannot_be_passed_off_as_torn(place):
    """A seal covers bytes that begin where a good line ends; what follows it must follow the line before."""
    [lines] = chain([[{"a": 1}, {"a": 2}, {"a": 3}]])
    first = json.loads(lines[0])
    edited = lines[1].replace(b'"a":2', b'"a":9')[:-1]
    seal = Entry.create(1, first["hash"], "sealed", seal_of(edited), 0)
    folder = written(place, [[lines[0], edited + b"\n", seal.line(), lines[2]]])
    assert any("does not follow" in f.text for f in verify(folder).findings)


def test_a_seal_without_a_torn_line_is_found(place):
    seal = Entry.create(0, GENESIS, "sealed", seal_of(b"x"), 0)
    assert not verify(written(place, [[seal.line()]])).whole


def test_numbers_that_json_does_not_know_are_told_by_name():
    entry = Entry.create(0, GENESIS, "gate", {"a": float("nan"), "b": [float("-inf"), {"c": 1.5}]}, 0)
    assert json.loads(entry.line())["data"] == {"a": "nan", "b": ["-inf", {"c": 1.5}]}
    assert entry.time == "1970-01-01T00:00:00.000000000Z"


def test_a_folder_without_a_log_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no such folder"):
        verify(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="holds no audit log"):
        verify(tmp_path)


def test_a_log_that_was_changed_is_not_continued_and_says_so(tmp_path):
    [lines] = chain([[{}, {}, {}]])
    path = tmp_path / "audit-000001.jsonl"
    for changed in ([lines[0], lines[2]], [lines[0], b"{}\n"], [lines[0], b"{", b"\n", lines[1]]):
        path.write_bytes(b"".join(changed))
        log = AuditLog(tmp_path, 10**6)
        assert "is damaged at line 2" in log.unread
        assert log.add("gate", {})
        assert not log.settle(30.0)
        log.close()
        assert log.status.problem == Reason.of("audit_write_failed", detail=log.unread)
        assert path.read_bytes() == b"".join(changed)
    assert not (tmp_path / "audit-000002.jsonl").exists()


def test_a_line_without_end_is_read_in_pieces(place, monkeypatch):
    monkeypatch.setattr(chain_module, "MOST_LINE", 1000)
    found = verify(written(place, [[*chain([[{"a": 1}]])[0], b"x" * 5000]]))
    assert (found.entries, found.whole) == (1, False)


@pytest.mark.parametrize(
    "field", [{"time": 5}, {"kind": ["gate"]}, {"previous": None}, {"number": True}, {"data": []}]
)
def test_an_entry_with_a_field_of_another_type_is_none(field):
    content = {"number": 0, "time": "t", "kind": "gate", "data": {}, "previous": GENESIS} | field
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    line = json.dumps({**content, "hash": digest}, sort_keys=True, separators=(",", ":")).encode()
    assert Entry.parse(line) is None


def test_the_number_of_a_file_has_digits_that_python_can_count(place):
    folder = written(place, chain([[{"a": 1}]]))
    (folder / "audit-\u00b2.jsonl").write_bytes(b"")
    with pytest.raises(InvalidInput, match="expected a name such as"):
        verify(folder)
