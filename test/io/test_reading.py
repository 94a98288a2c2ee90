# SPDX-License-Identifier: Apache-2.0
"""Reading files that others made: it ends, whatever they are, and says what is wrong with them."""

import os
import socket

import pytest

from sticker_uq.gate import Policy
from sticker_uq.io.parameter_files import read_parameters
from sticker_uq.io.reading import (
    DEEPEST_YAML,
    MOST_YAML,
    child_path,
    parse_json,
    parse_yaml,
    read_bytes,
    read_json,
    read_text,
    read_yaml,
    show_value,
)
from sticker_uq.scene import InvalidInput

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_a_file_is_read_whole_through_links(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link", 3) == b"abc"
    with pytest.raises(InvalidInput, match="link: 3 bytes, expected at most 2"):
        read_bytes(tmp_path / "link", 2)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    for name, kind in (
        ("pipe.jpg", "a named pipe"),
        ("zero.jpg", "a device"),
        ("socket", "a socket"),
        (".", "a folder"),
    ):
        with pytest.raises(InvalidInput, match=f"is {kind}, expected a regular file"):
            read_bytes(tmp_path / name, 100)


def test_a_file_that_has_more_bytes_than_it_says_is_cut_off():
    assert os.stat("/proc/self/maps").st_size == 0
    with pytest.raises(InvalidInput, match="bytes, expected at most 10"):
        read_bytes("/proc/self/maps", 10)


@pytest.mark.parametrize("name", ["absent", "a\0b", "\ud800", "x" * 300])
def test_a_file_that_cannot_be_there_is_refused(tmp_path, name):
    with pytest.raises(InvalidInput, match=r"no such file|NUL|too long"):
        read_bytes(tmp_path / name, 100)


def test_text_must_be_utf_8(tmp_path):
    (tmp_path / "latin").write_bytes("größer".encode("latin-1"))
    with pytest.raises(InvalidInput, match="expected UTF-8 text; invalid start byte at byte 2"):
        read_text(tmp_path / "latin", 100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, r"aliases \(\*name\) are not supported at line 2"),
        ("[" * 100_000, f"nested deeper than {DEEPEST_YAML} levels"),
        ("a: 1\nb: 2\na: 3\n", "found 'a' twice at line 3"),
        ("day: 2025-02-30", "not a YAML file"),
        (f"number: {'9' * 5000}", "not a YAML file"),
        ("? {}\n: 1", "not a YAML file"),
        ("a: {2025-02-03: 1}", r"found datetime.date\(2025, 2, 3\), expected a name \(quote it\) at line 1"),
        ("!!binary aGVsbG8=: 1", "found b'hello', expected a name"),
        pytest.param(f"number: 0x{'f' * 5000}", "a number of too many digits", id="hexadecimal"),
        ("a: \0", "not a YAML file"),
        ("!!python/object/apply:os.system [id]", "not a YAML file"),
    ],
)
def test_a_yaml_file_that_would_harm_is_refused(text, message):
    with pytest.raises(InvalidInput, match=message) as raised:
        parse_yaml(text, "policy x.yaml")
    assert str(raised.value).startswith("policy x.yaml: ")
    assert "\n" not in str(raised.value)


def test_yaml_is_read_as_usual():
    assert parse_yaml("", "x") is None
    assert parse_yaml("a: {b: [1, 0.5, true, x]}\nday: 2025-02-03\n", "x").keys() == {"a", "day"}
    assert parse_yaml("[1e-3, 2E5, -1.5e+2, .5e1, 1e, e1]", "x") == [1e-3, 2e5, -150.0, 5.0, "1e", "e1"]


@pytest.mark.parametrize(
    "load",
    [
        Policy.load,
        lambda path: read_parameters(path, "detector"),
        read_yaml,
    ],
)
def test_every_yaml_file_is_read_with_these_bounds(tmp_path, load):
    file = tmp_path / "file.yaml"
    file.write_text(LAUGHS)
    with pytest.raises(InvalidInput, match="aliases"):
        load(file)
    with file.open("wb") as stream:
        stream.truncate(MOST_YAML + 1)
    with pytest.raises(InvalidInput, match="expected at most 1048576"):
        load(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InvalidInput, match="is a named pipe"):
        load(file)


def test_json_is_read_or_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1, 2]}')
    assert read_json(tmp_path / "a.json") == {"a": [1, 2]}
    with pytest.raises(InvalidInput, match="expected at most 5"):
        read_json(tmp_path / "a.json", most=5)
    for text, message in (
        ("[" * 100_000, "nested too deeply"),
        ("{", "not valid JSON"),
        ("9" * 5000, "not v"),
    ):
        with pytest.raises(InvalidInput, match=message):
            parse_json(text, "x")


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../a.png", "images/../../a.png", "..", ".", "", "a\nb", "\ud800"]
)
def test_a_name_that_leaves_its_folder_is_refused(tmp_path, name):
    with pytest.raises(InvalidInput, match=r"image 3: file_name .*expected a file below"):
        child_path(tmp_path, name, "image 3")


def test_a_name_below_its_folder_is_taken(tmp_path):
    assert child_path(tmp_path, "images/größe 1.png", "image 3") == tmp_path / "images" / "größe 1.png"


def test_a_value_is_shown_in_short():
    deep = value = []
    for _ in range(100_000):
        value.append([])
        value = value[0]
    assert len(show_value(deep)) < 50
    assert len(show_value("x" * 10_000)) < 100
    assert len(show_value([["x" * 1000] * 1000] * 1000)) < 4000
    assert show_value("\ud800\x1b") == r"'\ud800\x1b'"
    while deep:  # Python frees nested lists one inside the other
        deep = deep.pop()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path, encoding):
    path = tmp_path / "x.json"
    path.write_text('{"a": "ä"}', encoding=encoding)
    assert read_text(path, 100) == '{"a": "ä"}'
    assert read_json(path) == {"a": "ä"}
    assert read_yaml(path) == {"a": "ä"}
