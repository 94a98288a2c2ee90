# SPDX-License-Identifier: Apache-2.0
"""Bounded reading of files: whatever a file holds, reading it ends, and takes a limited amount of memory.

Files come from anywhere: a data set from the web, a recording of another cell, a policy by mail. Only regular files are read,
because a FIFO or a device never ends, and no more of them than a file of that kind can need.
"""

import codecs
import datetime as dt
import json
import os
import re
import reprlib
import stat
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer, ComposerError
from yaml.constructor import ConstructorError

from sticker_uq.scene import InvalidInput

MIB = 1 << 20
MOST_YAML = MIB
"""Bytes of a YAML file. The longest policy that `sticker-uq calibrate` writes has 5 % of them; a larger one takes seconds."""
DEEPEST_YAML = 32
"""Levels of a YAML file. ROS namespaces and a robustness specification have fewer than ten."""
MOST_JSON = 128 * MIB
"""Bytes of a JSON file. Annotations of 300,000 pictures fit in."""
_CHUNK = MIB
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks and what they announce, longer ones first: Windows' Notepad and PowerShell write them."""
_MOST_BITS = 14_000
"""Of a YAML integer. Python prints at most 4300 digits."""
_YAML_1_2_FLOAT = re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")

PathLike = str | os.PathLike[str]

_brief = reprlib.Repr()
_brief.maxlevel, _brief.maxstring, _brief.maxother, _brief.maxlong = 3, 80, 80, 40


def show_value(value: object) -> str:
    """``repr(value)`` for an error message, shortened: a value from a file may be of any length and depth."""
    return _brief.repr(value)


def check_regular(path: PathLike, name: str = "") -> int:
    """Size in bytes of the regular file at ``path``, links followed; InvalidInput, naming ``name`` (default: path), for none."""
    name = name or f"{os.fspath(path)}"
    try:
        found = os.stat(path)
    except OSError as error:
        raise InvalidInput(f"{name}: {_words(error)}") from None
    except ValueError:
        raise InvalidInput(f"{name}: expected the name of a file without NUL and lone surrogates") from None
    return _regular(found, name)


def read_bytes(path: PathLike, most: int, name: str = "") -> bytes:
    """The content of the regular file at ``path``, links followed.

    Raises :class:`InvalidInput`, which calls the file ``name`` (default: its path), when it cannot be read, is no regular file
    or is longer than ``most`` bytes.
    """
    return b"".join(read_chunks(path, most, name))


def read_chunks(path: PathLike, most: int, name: str = "") -> Iterator[bytes]:
    """The content of the file at ``path`` in pieces; raises what :func:`read_bytes` raises, for its length at the end at last."""
    name = name or f"{os.fspath(path)}"
    check_regular(path, name)
    try:
        # it may have become a FIFO since, which would block
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            size, read = _regular(os.fstat(descriptor), name), 0
            # some files (in /proc, or while they grow) have more bytes than they say
            while size <= most and (chunk := stream.read(_CHUNK)):
                yield chunk
                read += len(chunk)
                size = max(size, read)
    except OSError as error:
        raise InvalidInput(f"{name}: {_words(error)}") from None
    if size > most:
        raise InvalidInput(f"{name}: {size} bytes, expected at most {most}")


def read_text(path: PathLike, most: int, name: str = "") -> str:
    """Text, UTF-8 or as its byte order mark (left out) says; raises as :func:`read_bytes`, also for other encodings."""
    data = read_bytes(path, most, name)
    encoding = detect_encoding(data) or "utf-8"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{name or os.fspath(path)}: expected {encoding.removesuffix('-sig').upper()} text; {error.reason} at byte "
            f"{error.start}"
        ) from None


def detect_encoding(data: bytes) -> str:
    """The encoding that the byte order mark announces, "" without a mark."""
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "")


def read_yaml(path: PathLike, name: str = "") -> Any:
    """The YAML document in the file at ``path``, of plain types; None for an empty one.

    Aliases are refused, because a few of them make gigabytes of a few bytes, and so is a key that occurs twice, of which PyYAML
    silently drops the first, a key that JSON cannot have (a day, bytes), and a number of more digits than Python prints. ``1e-3``
    is a number, as for ROS 2. Raises :class:`InvalidInput`, which calls the file ``name`` (default: its path), for a file that
    :func:`read_text` refuses, that is no YAML or nested deeper than :data:`DEEPEST_YAML`.
    """
    name = name or f"{os.fspath(path)}"
    return parse_yaml(read_text(path, MOST_YAML, name), name)


def parse_yaml(text: str, name: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        words = str(error).replace('in "<unicode string>", ', "at ").split()
        raise InvalidInput(f"{name}: not a YAML file: {' '.join(words)}") from None
    except (ValueError, OverflowError) as error:  # a day that does not exist, a number of 5000 digits
        raise InvalidInput(f"{name}: not a YAML file: {error}") from None


def read_json(path: PathLike, name: str = "", most: int = MOST_JSON) -> Any:
    """InvalidInput, which calls the file ``name`` (default: its path), for what :func:`read_text` refuses or that is no JSON."""
    name = name or f"{os.fspath(path)}"
    return parse_json(read_text(path, most, name), name)


def parse_json(text: str | bytes, name: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidInput(f"{name}: not valid JSON (nested too deeply)") from None
    except ValueError as error:
        raise InvalidInput(f"{name}: not valid JSON ({error})") from None


def child_path(folder: Path, file_name: str, name: str) -> Path:
    """The path of a file in ``folder``; raises :class:`InvalidInput`, naming the entry ``name``, for a file name that leaves it.

    Links inside of ``folder`` may point anywhere: whoever made them there could have put the file itself there.
    """
    parts = Path(file_name).parts
    if not file_name.isprintable() or not parts or Path(file_name).is_absolute() or ".." in parts:
        raise InvalidInput(
            f"{name}: file_name {show_value(file_name)}: expected a file below {folder}, named in printable characters"
        )
    return folder / file_name


class _Loader(Composer, yaml.CSafeLoader):
    """PyYAML's loader of plain types, without aliases, without equal keys, and of limited depth.

    libyaml parses, which is faster; what is refused is seen where Python composes.
    """

    def __init__(self, text: str) -> None:
        Composer.__init__(self)
        yaml.CSafeLoader.__init__(self, text)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise ComposerError(None, None, "aliases (*name) are not supported", event.start_mark)
        if self._depth >= DEEPEST_YAML:
            raise ComposerError(None, None, f"nested deeper than {DEEPEST_YAML} levels", event.start_mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for named, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = self.construct_object(named, deep=True)
            twice = isinstance(key, Hashable) and key in keys
            if twice or isinstance(key, dt.date | bytes):
                problem = f"found {show_value(key)}{' twice' if twice else ', expected a name (quote it)'}"
                raise ConstructorError("while reading a mapping", node.start_mark, problem, named.start_mark)
            keys |= {key} if isinstance(key, Hashable) else set()
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> int:
        number: int = super().construct_yaml_int(node)
        if number.bit_length() > _MOST_BITS:  # written as hexadecimal, say: no message could show it
            raise ConstructorError(None, None, "found a number of too many digits", node.start_mark)
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _YAML_1_2_FLOAT, list("-+.0123456789"))


def _regular(found: os.stat_result, name: str) -> int:
    if not stat.S_ISREG(found.st_mode):
        kinds = {
            stat.S_IFDIR: "a folder",
            stat.S_IFIFO: "a named pipe",
            stat.S_IFCHR: "a device",
            stat.S_IFBLK: "a device",
            stat.S_IFSOCK: "a socket",
        }
        kind = kinds.get(stat.S_IFMT(found.st_mode), "no file")
        raise InvalidInput(f"{name}: is {kind}, expected a regular file")
    return found.st_size


def _words(error: OSError) -> str:
    return "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
