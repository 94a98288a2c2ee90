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
Note = Callable[[str, str], None]
"""Called when a step begins in an unexpected way: its name, and what a person should know."""
_KEEP_EVERY = 5.0
"""Seconds after which the time that a step has taken is kept again."""
_MOST_NAMED = 3
_SHORT = 40
"""Characters of a value that is shown when it has changed."""


class Steps:
    """The steps in the folder ``work``: each has a marker ``steps/NAME.json`` and may have a folder ``NAME``.

    Raises :class:`InvalidInput` for a folder that holds something else.
    """

    def __init__(
        self,
        work: Path,
        say: Say = lambda name, line, seconds, before: None,
        name: str = "",
        note: Note = lambda name, line: None,
    ) -> None:
        check_output_folder(work, name)
        self.work, self._say, self.note = work, say, note
        self._keep: Callable[[], None] = lambda: None
        self._kept = time.monotonic()
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
        after one with others. ``outputs``: files in it without which the step is not done. The seconds of a step are those of
        all the calls that it took.
        """
        folder, marker = self.work / name, self.work / STEPS / f"{name}.json"
        given = json.loads(json.dumps({**inputs, "version": metadata.version("sticker_uq")}, default=str))
        key = digest(given)
        known = self._marker(marker)
        spent = 0.0
        if known.get("inputs") != key:
            shutil.rmtree(folder, ignore_errors=True)
            if known:
                self.note(name, f"anew: {_changes(known.get('given', {}), given)}")
        elif "result" in known and all((folder / file).is_file() for file in outputs):
            try:
                result = kind.model_validate(known["result"])
            except ValidationError:
                raise InvalidInput(
                    f"{marker}: is of another version; remove it to do the step again"
                ) from None
            self._say(name, str(result), known["seconds"], True)
            return result
        else:
            spent = float(known.get("seconds", 0.0))
        content = {"inputs": key, "given": given}
        started = time.monotonic()

        def seconds() -> float:
            return round(spent + time.monotonic() - started, 1)

        self._keep = lambda: _write(marker, {**content, "seconds": seconds()})
        self._keep()
        folder.mkdir(exist_ok=True)
        try:
            result = make(folder)
        except BaseException:
            self._keep()
            raise
        finally:
            self._keep = lambda: None
        _write(marker, {**content, "result": json.loads(result.model_dump_json()), "seconds": seconds()})
        if not any(folder.iterdir()):
            folder.rmdir()
        self._say(name, str(result), seconds(), False)
        return result

    def advance(self) -> None:
        """Called while a step runs, as often as may be: a call that is killed then has kept the time it took."""
        if time.monotonic() - self._kept > _KEEP_EVERY:
            self._keep()
            self._kept = time.monotonic()

    def _marker(self, path: Path) -> dict[str, Any]:
        if not path.exists():
            return {}
        known = read_json(path)
        if not isinstance(known, dict):
            raise InvalidInput(f"{path}: expected the marker of a step; remove it to do the step again")
        return known


def _changes(before: Any, now: Mapping[str, Any]) -> str:
    """What differs between the inputs of an earlier result and those ``now``, in words."""
    if not isinstance(before, dict) or not before:
        return "it was given something else before"
    old, new = _flat(before), _flat(now)
    changed = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    told = [_change(name[-1], old.get(name), new.get(name)) for name in changed[:_MOST_NAMED]]
    more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
    return f"{', '.join(told)}{more}"


def _change(name: str, before: Any, now: Any) -> str:
    texts = [
        "the default" if value is None else json.dumps(value) if isinstance(value, list) else str(value)
        for value in (before, now)
    ]
    # the hash of a file or of a part of the data tells a person nothing
    return f"{name} changed" + (f" from {texts[0]} to {texts[1]}" if max(map(len, texts)) <= _SHORT else "")


def _flat(values: Mapping[str, Any], place: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """``values`` with those of inner mappings, by the names that lead to each."""
    flat: dict[tuple[str, ...], Any] = {}
    for name, value in values.items():
        at = (*place, name)
        flat |= _flat(value, at) if isinstance(value, dict) else {at: value}
    return flat


def digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of the JSON ``values`` that a step of the qualification is made from, hex."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path, "w") as stream:
        json.dump(content, stream, indent=1)
