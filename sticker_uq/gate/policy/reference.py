# SPDX-License-Identifier: Apache-2.0
"""The reference of a policy: the signals of the scenes that it was made from, and the file beside the policy that has them, a
column for each signal, a line for each calibration scene.

The policy's section `reference` names the file with its SHA-256. Policies of before 0.4 have the values in that section.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from sticker_uq.gate.policy.familiarity import MEASURES, SceneSignal
from sticker_uq.io.files import write_file
from sticker_uq.io.reading import MIB, child_path, read_bytes, read_yaml, show_value
from sticker_uq.io.setting_fields import Finite
from sticker_uq.scene import InvalidInput, SceneAssessment, Status

MISSING = -1.0
"""The value of a signal that could not be measured. All signals are at least 0, so that it ranks below them."""
_DIGITS = 6
_MIN_SCENES = 20


def _select_measures(*names: SceneSignal) -> dict[str, Callable[[SceneAssessment], float]]:
    return {name: MEASURES[name] for name in names}


SIGNALS: Mapping[str, Callable[[SceneAssessment], float]] = {
    **_select_measures("score", "shannon_entropy", "relative_total_variance", "background_saliency"),
    "objects": lambda scene: float(len(scene.objects)),
    **_select_measures("unstable", "mean_level", "saturated_share", "noise", "sharpness", "novelty"),
}
"""One number per scene each. None of them was fitted to the scenes of the reference, which would make those special."""


def signal_value(name: str, scene: SceneAssessment) -> float:
    """Signal ``name`` of ``scene``, to 6 significant digits as in a policy file; MISSING when not measured."""
    value = SIGNALS[name](scene)
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else MISSING


class Reference(Finite):
    """The signals of the scenes that a policy was made from, one value per scene each; a section of the policy file."""

    signals: dict[str, tuple[float, ...]]
    """Values by signal, one per calibration scene; -1: it could not be measured"""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        unknown = sorted(set(self.signals) - set(SIGNALS))
        if unknown or not self.signals:
            raise ValueError(f"unknown signals {unknown}, expected some of {', '.join(SIGNALS)}")
        counts = {len(values) for values in self.signals.values()}
        if len(counts) != 1 or min(counts) < _MIN_SCENES:
            raise ValueError(
                f"signals have {sorted(counts)} values, expected the same number of each, at least {_MIN_SCENES}"
            )
        return self

    @classmethod
    def of(cls, scenes: Iterable[SceneAssessment]) -> Reference:
        """The reference of a policy made from ``scenes``: one per workpiece, as the cell first sees it.

        Failed scenes are left out, and signals that were measured on none of the others. Raises :class:`InvalidInput` when fewer
        than 20 can be used.
        """
        used = [scene for scene in scenes if scene.status in (Status.OK, Status.DEGRADED)]
        if len(used) < _MIN_SCENES:
            raise InvalidInput(f"{len(used)} usable scenes, expected at least {_MIN_SCENES} for a reference")
        signals = {name: tuple(signal_value(name, scene) for scene in used) for name in SIGNALS}
        return cls(signals={name: values for name, values in signals.items() if set(values) != {MISSING}})

    @property
    def scenes(self) -> int:
        return len(next(iter(self.signals.values())))


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
