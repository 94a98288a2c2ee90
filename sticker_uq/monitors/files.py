# SPDX-License-Identifier: Apache-2.0
"""Monitors on the disk: NAME.safetensors with what was learned, NAME.json with what it is."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import MIB, read_bytes, read_json
from sticker_uq.monitors.interface import Monitor
from sticker_uq.monitors.registry import monitor_named
from sticker_uq.scene import InvalidInput

FORMAT = 1
MOST_LEARNED = 1024 * MIB
"""Bytes of what a monitor learned."""


def save_monitor(
    monitor: Monitor, folder: str | os.PathLike[str], about: dict[str, Any] | None = None
) -> Path:
    """Write the fitted ``monitor`` to ``folder``, which must exist, and return the path of its JSON file.

    ``about``: whatever else JSON can hold (what it was fitted on). The JSON file comes last and names the checksum of the
    other one, so a reader never takes half of it. OSError when the disk fails.
    """
    arrays = {name: np.ascontiguousarray(value) for name, value in monitor.arrays().items()}
    data = save(arrays)
    document = {
        "format": FORMAT,
        "name": monitor.name,
        "needs": list(monitor.needs),
        "cost_ms": None if math.isnan(monitor.cost_ms) else monitor.cost_ms,
        "settings": monitor.settings(),
        "sha256": hashlib.sha256(data).hexdigest(),
        "about": about or {},
    }
    path = Path(folder) / f"{monitor.name}.json"
    with atomic_write(path.with_suffix(".safetensors")) as stream:
        stream.write(data)
    with atomic_write(path, "w") as stream:
        json.dump(document, stream, indent=1)
    return path


def load_monitor(folder: str | os.PathLike[str], name: str) -> Monitor:
    """The monitor ``name`` as :func:`save_monitor` wrote it to ``folder``.

    Raises InvalidInput, naming the file, when one is missing, broken, of another format or does not belong to the other.
    """
    path = Path(folder) / f"{name}.json"
    document = read_description(path)
    data = read_bytes(path.with_suffix(".safetensors"), MOST_LEARNED)
    found = hashlib.sha256(data).hexdigest()
    if found != document.get("sha256"):
        raise InvalidInput(
            f"{path.with_suffix('.safetensors')}: checksum {found[:12]} is not the one in {path.name}"
        )
    try:
        monitor = monitor_named(name, **document["settings"])
        arrays = load(data)
        if arrays:
            monitor.restore(arrays)
        cost = document.get("cost_ms")
        monitor.cost_ms = math.nan if cost is None else float(cost)
    except (KeyError, TypeError, ValueError, OverflowError, SafetensorError, RuntimeError) as error:
        raise InvalidInput(f"{path}: no description of a fitted {name}: {error}") from None
    return monitor


def read_description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        fitted = ", ".join(sorted(p.stem for p in path.parent.glob("*.json"))) or "none"
        raise InvalidInput(f"{path}: no such file; fitted there: {fitted}")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInput(f"{path}: expected the description of a monitor in format {FORMAT}")
    return document
