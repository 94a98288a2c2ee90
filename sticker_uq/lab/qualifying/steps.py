# SPDX-License-Identifier: Apache-2.0
"""Steps whose results stay in a folder, so that a run that was killed resumes with the first step that is not done."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sticker_uq.io.files import atomic_write
from sticker_uq.io.outputs import check_output_folder
from sticker_uq.io.reading import read_json
from sticker_uq.scene import InvalidInput

STEPS = "steps"


class StepResult(BaseModel):
    """What a step found, as its marker keeps it; ``str`` is one line for a person."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


Result = TypeVar("Result", bound=StepResult)
Say = Callable[[str, str, float, bool], None]
"""Called when a step is done: its name, its line, the seconds it took, and whether it had been done before."""


class Steps:
    """The steps in the folder ``work``: each has a marker ``steps/NAME.json`` and may have a folder ``NAME``.

    Raises :class:`InvalidInput` for a folder that holds something else.
    """

    def __init__(
        self, work: Path, say: Say = lambda name, line, seconds, before: None, name: str = ""
    ) -> None:
        check_output_folder(work, name)
        self.work, self._say = work, say
        if work.is_dir() and any(work.iterdir()) and not (work / STEPS).is_dir():
            raise InvalidInput(f"{name or work}: holds no steps of an earlier call; choose another folder")
        (work / STEPS).mkdir(parents=True, exist_ok=True)

    def run(
        self,
        name: str,
        inputs: Mapping[str, Any],
        kind: type[Result],
        make: Callable[[Path], Result],
        outputs: Sequence[str] = (),
    ) -> Result:
        """The result of the qualification's step ``name``, by ``make`` unless made from the same ``inputs`` (JSON values) by
        this version.

        ``make`` gets the folder of the step, which has what an interrupted run with the same inputs left there, and is empty
        after one with others. ``outputs``: files in it without which the step is not done.
        """
        folder, marker = self.work / name, self.work / STEPS / f"{name}.json"
        key = digest({**inputs, "version": metadata.version("sticker_uq")})
        known = self._marker(marker)
        if known.get("inputs") != key:
            shutil.rmtree(folder, ignore_errors=True)
        elif "result" in known and all((folder / file).is_file() for file in outputs):
            try:
                result = kind.model_validate(known["result"])
            except ValidationError:
                raise InvalidInput(
                    f"{marker}: is of another version; remove it to do the step again"
                ) from None
            self._say(name, str(result), known["seconds"], True)
            return result
        _write(marker, {"inputs": key})
        folder.mkdir(exist_ok=True)
        started = time.monotonic()
        result = make(folder)
        seconds = time.monotonic() - started
        _write(
            marker,
            {"inputs": key, "result": json.loads(result.model_dump_json()), "seconds": round(seconds, 1)},
        )
        if not any(folder.iterdir()):
            folder.rmdir()
        self._say(name, str(result), seconds, False)
        return result

    def _marker(self, path: Path) -> dict[str, Any]:
        if not path.exists():
            return {}
        known = read_json(path)
        if not isinstance(known, dict):
            raise InvalidInput(f"{path}: expected the marker of a step; remove it to do the step again")
        return known


def digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of the JSON ``values`` that a step of the qualification is made from, hex."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file that a step of the qualification reads, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path, "w") as stream:
        json.dump(content, stream, indent=1)
