# SPDX-License-Identifier: Apache-2.0
"""The file beside a policy that has the values of its reference: a column for each signal, a line for each calibration scene.

The policy's section `reference` names it with its SHA-256. Policies of before 0.4 have the values in that section themselves.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sticker_uq.gate.assumptions.drift import Reference
from sticker_uq.io.files import write_file
from sticker_uq.io.reading import MIB, child_path, read_bytes, read_yaml, show_value
from sticker_uq.scene import InvalidInput

SUFFIX = ".reference.csv"
_MOST = 64 * MIB
"""Bytes of the file: half a million scenes."""


def write_reference(reference: Reference, policy: Path) -> dict[str, str]:
    """Write ``reference`` beside the file ``policy``; returns that policy's section `reference`."""
    rows = [reference.signals, *zip(*reference.signals.values(), strict=True)]
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    path = reference_beside(policy)
    write_file(path, text)
    return {"file": path.name, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def reference_beside(policy: Path) -> Path:
    """The file that the reference of a new policy goes to, which is written to the file ``policy``."""
    return policy.with_name(policy.stem + SUFFIX)


def reference_file(policy: Path) -> Path | None:
    """The file that belongs to the one at ``policy``, which :meth:`Policy.load` accepts; None where there is none."""
    section = read_yaml(policy).get("reference")
    return policy.with_name(section["file"]) if section and "file" in section else None


def read_reference(section: Mapping[str, Any], policy: Path, name: str) -> dict[str, Any]:
    """The fields of the :class:`Reference` that the ``section`` of the file ``policy`` names.

    Raises :class:`InvalidInput`, which calls the section ``name``, when the file is missing, cannot be read or is another one.
    """
    file, expected = section.get("file"), section.get("sha256")
    if set(section) != {"file", "sha256"} or not (isinstance(file, str) and isinstance(expected, str)):
        raise InvalidInput(f"{name} = {show_value(section)}: expected file and sha256, or signals")
    path = child_path(policy.parent, file, name)
    if path.parent != policy.parent or not file.endswith(SUFFIX):
        raise InvalidInput(
            f"{name}.file = {show_value(file)}: expected NAME{SUFFIX}, a file beside the policy"
        )
    if not path.exists():
        raise InvalidInput(f"{name}: {path}: no such file; it belongs to the policy, copy both")
    data = read_bytes(path, _MOST, f"{name}: {path}")
    if (found := hashlib.sha256(data).hexdigest()) != expected:
        raise InvalidInput(
            f"{name}: {path} is not the file that was made with the policy (SHA-256 {found[:12]}, expected "
            f"{show_value(expected[:12])}); copy that one here"
        )
    try:
        names, *rows = (line.split(",") for line in data.decode().splitlines())
        columns = zip(*([float(value) for value in row] for row in rows), strict=True)
        return {"signals": dict(zip(names, columns, strict=True))}
    except ValueError as error:
        raise InvalidInput(
            f"{name}: {path}: expected the names of the signals, and a number for each in every other line ({error})"
        ) from None
