# SPDX-License-Identifier: Apache-2.0
"""A fitted panel on the disk: one file pair per monitor, the probe, and panel.json about all."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sticker_uq.detection import StochasticDetector
from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import MIB, MOST_JSON, read_bytes, read_json
from sticker_uq.io.setting_fields import Frozen, words
from sticker_uq.perception.monitors.detections import Probe
from sticker_uq.perception.monitors.interface import Monitor
from sticker_uq.perception.monitors.panel import OF_PASSES, Panel, PanelMember, same_passes
from sticker_uq.perception.monitors.registry import monitor_named
from sticker_uq.scene import InvalidInput

FORMAT = 1
MOST_LEARNED = 1024 * MIB
"""Bytes of what a monitor learned."""


def save_monitor(monitor: Monitor, folder: str | os.PathLike[str]) -> Path:
    """Write the fitted ``monitor`` to ``folder``, which must exist, and return the path of its JSON file.

    The JSON file comes last and names the checksum of the other one, so a reader never takes half of it. OSError when the disk
    fails.
    """
    data = save({name: np.ascontiguousarray(value) for name, value in monitor.arrays().items()})
    document = {
        "format": FORMAT,
        "name": monitor.name,
        "needs": list(monitor.needs),
        "cost_ms": None if math.isnan(monitor.cost_ms) else monitor.cost_ms,
        "settings": monitor.settings(),
        "sha256": _sha256(data),
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
    if not path.is_file():
        fitted = ", ".join(sorted(p.stem for p in path.parent.glob("*.json"))) or "none"
        raise InvalidInput(f"{path}: no such file; fitted there: {fitted}")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInput(f"{path}: expected the description of a monitor in format {FORMAT}")
    learned = path.with_suffix(".safetensors")
    data = read_bytes(learned, MOST_LEARNED)
    found = _sha256(data)
    if found != document.get("sha256"):
        raise InvalidInput(f"{learned}: checksum {found[:12]} is not the one in {path.name}")
    try:
        monitor = monitor_named(name, **document["settings"])
        monitor.restore(load(data))
        cost = document.get("cost_ms")
        monitor.cost_ms = math.nan if cost is None else float(cost)
    except (KeyError, TypeError, ValueError, OverflowError, SafetensorError, RuntimeError) as error:
        raise InvalidInput(f"{path}: no description of a fitted {name}: {error}") from None
    return monitor


PANEL_FILE = "panel.json"
_PROBE = "probe.safetensors"


class _Section(Frozen):
    model_config = ConfigDict(protected_namespaces=())


class MonitorFile(_Section):
    """One monitor: its ``limit``, the checksum of its JSON file, its cost in ms per object, and how many of the
    stickers that would rightly be removed it alone refuses.
    """

    limit: float
    sha256: str
    cost_ms: float
    refused: int = Field(ge=0)


class MonitorCalibration(_Section):
    """The images that limits come from: ``stickers`` that the policy with ``policy_hash`` would rightly remove, those ``refused``
    by any monitor, the share ``alarms`` that was allowed; ``wrong`` removals, and those ``caught``.
    """

    images: int = Field(ge=0)
    stickers: int = Field(ge=0)
    refused: int = Field(ge=0)
    wrong: int = Field(ge=0)
    caught: int = Field(ge=0)
    alarms: float
    policy_hash: str


class PanelFile(_Section):
    """What panel.json says. ``settings``: those of the detector that scores depend on."""

    format: int
    model: str
    model_hash: str
    settings: dict[str, Any]
    monitors: dict[str, MonitorFile]
    probe: str
    members: dict[str, str] = Field({}, max_length=0)
    """Weights of an ensemble: of panels of before, which are refused."""
    calibration: MonitorCalibration
    about: dict[str, Any]


def save_panel(
    folder: Path,
    detector: StochasticDetector,
    voters: Sequence[PanelMember],
    refused: Mapping[str, int],
    probe: Probe,
    calibration: MonitorCalibration,
    about: Mapping[str, Any],
) -> PanelFile:
    """Write a panel with all its monitors to ``folder``, which is made, and return what panel.json says.

    panel.json comes last and names the checksums of the others, so that a reader never takes half of it.
    ``refused``: by monitor, see :class:`MonitorFile`. OSError when the disk fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = {}
    for voter in voters:
        path = save_monitor(voter.monitor, folder)
        described[voter.name] = MonitorFile(
            limit=voter.limit,
            sha256=_sha256(path.read_bytes()),
            cost_ms=voter.monitor.cost_ms,
            refused=refused[voter.name],
        )
    data = save({"weight": np.ascontiguousarray(probe.weight), "bias": np.ascontiguousarray(probe.bias)})
    with atomic_write(folder / _PROBE) as stream:
        stream.write(data)
    document = PanelFile(
        format=FORMAT,
        model=detector.name,
        model_hash=detector.weights_hash,
        settings={name: getattr(detector.settings, name) for name in OF_PASSES},
        monitors=described,
        probe=_sha256(data),
        calibration=calibration,
        about=dict(about),
    )
    with atomic_write(folder / PANEL_FILE, "w") as stream:
        json.dump(document.model_dump(mode="json"), stream, indent=1)
    return document


def load_panel(folder: str | os.PathLike[str], names: Sequence[str], detector: StochasticDetector) -> Panel:
    """The monitors ``names`` of the panel in ``folder``, all for none, for objects of ``detector``.

    Raises InvalidInput naming the file when one is missing, broken or does not belong to the others, when the panel was fitted
    for other weights or other settings of the passes, and for a name that is not in it.
    """
    root = Path(folder)
    text, document = _read(root / PANEL_FILE)
    if document.model_hash != detector.weights_hash:
        raise InvalidInput(
            f"panel {root} was fitted for {document.model} with the weights {document.model_hash[:12]}, not for {detector.name} "
            f"with {detector.weights_hash[:12]}: fit another one with `sticker-uq monitors fit`"
        )
    try:
        same_passes(document.settings, detector)
    except InvalidInput as error:
        raise InvalidInput(f"panel {root}: {error}; fit another one with `sticker-uq monitors fit`") from None
    unknown = [name for name in names if name not in document.monitors]
    if unknown:
        raise InvalidInput(
            f"panel {root}: monitor {unknown[0]!r} was not fitted, expected some of {', '.join(document.monitors)}"
        )
    voters = []
    for name in names or document.monitors:
        described = document.monitors[name]
        _check_bytes(root / f"{name}.json", described.sha256)
        voters.append(PanelMember(load_monitor(root, name), described.limit))
    return Panel(voters, _probe(root / _PROBE, document.probe), _sha256(text))


def _read(path: Path) -> tuple[bytes, PanelFile]:
    if not path.exists():
        raise InvalidInput(f"{path}: no such file; expected a folder made by `sticker-uq monitors fit`")
    text = read_bytes(path, MOST_JSON)
    try:
        document = PanelFile.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise InvalidInput(
            f"{path}: no description of a panel: {where + ': ' if where else ''}{words(problem, PanelFile)}"
        ) from None
    if document.format != FORMAT:
        raise InvalidInput(f"{path}: format {document.format}, expected {FORMAT}")
    return text, document


def _check_bytes(path: Path, digest: str) -> bytes:
    if not path.exists():
        raise InvalidInput(f"{path}: no such file, but {PANEL_FILE} names it")
    content = read_bytes(path, MOST_LEARNED)
    found = _sha256(content)
    if found != digest:
        raise InvalidInput(f"{path}: checksum {found[:12]} is not the one in {PANEL_FILE}")
    return content


def _probe(path: Path, digest: str) -> Probe:
    try:
        arrays = load(_check_bytes(path, digest))
        return Probe(arrays["weight"], arrays["bias"])
    except (KeyError, SafetensorError) as error:
        raise InvalidInput(f"{path}: no probe: {error}") from None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
