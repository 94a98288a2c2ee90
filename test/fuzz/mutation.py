# SPDX-License-Identifier: Apache-2.0
"""Inputs for parsers: examples that work, with changes that a parser has to expect."""

import copy
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st

_EDGES = (
    b"\0",
    b"\xff",
    b"\xff" * 4,
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0" * 8,
    b"\x80",
    b"\n",
    b'"',
    b"\xed\xa0\x80",
)
_NUMBERS = st.integers(0, 2**32 - 1)
_Change = tuple[str, int, int]


def nested(depth: int) -> list[Any]:
    """A list in a list, ``depth`` of them."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 255, 2**31, 2**63, -(2**64), 10**400, 0.5, -0.0, 1e-320, 1e308, -1e308, math.nan,
    math.inf, -math.inf, "", "0.8", "x" * 5000, "\ud800", "\0", "\x1b[2J", "a\nb", "../../etc/passwd", "/dev/zero", "nan",
    "2020-01-01", "9999-12-31", "\u202e", [], {}, [[]], [None], {"": None}, [0] * 500, [1.0, 2.0], nested(20), nested(100),
)  # fmt: skip
"""What may stand in the place of any value of a document."""


def changed_bytes(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of ``seeds`` with one to eight changes: bytes set, inserted, removed, repeated, cut off, or taken from another seed."""
    kinds = st.sampled_from(("set", "flip", "insert", "remove", "repeat", "cut", "splice"))
    changes = st.lists(st.tuples(kinds, _NUMBERS, _NUMBERS), min_size=1, max_size=8)
    return st.builds(lambda seed, made: _change_bytes(seed, made, seeds), st.sampled_from(seeds), changes)


def changed_documents(seeds: Sequence[Any], written: Callable[[Any], bytes]) -> st.SearchStrategy[bytes]:
    """One of the documents ``seeds`` with one to four values replaced, removed, added or exchanged, as ``written`` has it."""
    kinds = st.sampled_from(("replace", "remove", "add", "copy", "number"))
    changes = st.lists(st.tuples(kinds, _NUMBERS, _NUMBERS), min_size=1, max_size=4)
    return st.builds(
        lambda seed, made: written(changed_document(seed, made)), st.sampled_from(list(seeds)), changes
    )


def as_json(value: Any) -> bytes:
    """``value`` as JSON; what only Python writes (NaN) is there too."""
    return json.dumps(value).encode()


def as_yaml(value: Any) -> bytes:
    """``value`` as YAML, without aliases."""
    return yaml.dump(value, Dumper=_Plain, sort_keys=False).encode("utf-8", "surrogatepass")


def changed_document(seed: Any, changes: Sequence[_Change]) -> Any:
    """A copy of ``seed`` with these changes."""
    root = [copy.deepcopy(seed)]
    for kind, where, what in changes:
        places = list(_places(root))
        holder, key = places[where % len(places)]
        if kind == "replace":
            holder[key] = odd(what)
        elif kind == "number" and type(holder[key]) in (int, float):
            holder[key] = holder[key] * (what % 7 - 3) + (what % 5 - 2)
        elif kind == "remove" and holder is not root:
            del holder[key]
        elif kind == "copy":
            source, name = places[what % len(places)]
            holder[key] = copy.deepcopy(source[name])
        elif isinstance(holder, dict):
            added = odd(what)
            holder[added if isinstance(added, str | int | float | None) else "added"] = holder[key]
        else:
            holder.insert(key, holder[key])
    return root[0]


def odd(number: int) -> Any:
    """A copy of one of :data:`ODD`, which further changes may change."""
    return copy.deepcopy(ODD[number % len(ODD)])


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, inner in items:
        found.append((value, key))
        found += _places(inner)
    return found


def _change_bytes(seed: bytes, changes: Sequence[_Change], seeds: Sequence[bytes]) -> bytes:
    data = bytearray(seed)
    for kind, where, what in changes:
        at = where % (len(data) + 1)
        length = 1 + what % 16
        edge = _EDGES[what % len(_EDGES)]
        if kind == "set":
            data[at : at + len(edge)] = edge
        elif kind == "flip":
            data[at : at + 1] = bytes(byte ^ (1 << what % 8) for byte in data[at : at + 1])
        elif kind == "insert":
            data[at:at] = edge
        elif kind == "remove":
            del data[at : at + length]
        elif kind == "repeat":
            data[at:at] = data[at : at + length] * (1 + what % 50)
        elif kind == "cut":
            del data[at:]
        else:
            other = seeds[what % len(seeds)]
            data[at:] = other[at % (len(other) + 1) :]
    return bytes(data)


class _Plain(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
