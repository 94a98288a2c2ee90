# SPDX-License-Identifier: Apache-2.0
"""What a study or a qualification keeps on the disk, and goes on from: documents, the results of steps."""

import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, ValidationError

from sticker_uq.io.files import check_output_folder, write_file
from sticker_uq.io.reading import read_json
from sticker_uq.io.setting_fields import Frozen
from sticker_uq.scene import InvalidInput
from sticker_uq.version import __version__

STEPS = "steps"


def fingerprint(named: Any, *arrays: NDArray[Any]) -> str:
    """Identity of a piece: 16 hex digits over what is ``named`` and the arrays."""
    digest = hashlib.blake2b(json.dumps(named, sort_keys=True).encode(), digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def read_or_make_document(path: Path | None, make: Callable[[], Any]) -> Any:
    """The JSON document ``path``, made and written there if it is absent; None: made anew."""
    if path is not None and path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    found = make()
    if path is not None:
        _write(path, found)
    return found


class StepResult(Frozen):
    """What a step found, as its marker keeps it; ``str`` is one line for a person."""

    model_config = ConfigDict(ser_json_inf_nan="strings")


Result = TypeVar("Result", bound=StepResult)


class Steps:
    """The steps in ``work``, each with a marker ``steps/NAME.json`` and perhaps a folder ``NAME``; ``tell`` hears of each."""

    def __init__(
        self, work: Path, tell: Callable[[str, str], None] = lambda name, line: None, name: str = ""
    ) -> None:
        check_output_folder(work, name)
        self.work, self.tell = work, tell
        if work.is_dir() and any(work.iterdir()) and not (work / STEPS).is_dir():
            raise InvalidInput(f"{name or work}: holds no steps of an earlier call; choose another folder")
        (work / STEPS).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other calls out of the folder; InvalidInput when one is in it."""
        with (self.work / STEPS / "lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(
                    f"{self.work}: another call works in it; wait for its end, stop it, or choose another --work"
                ) from None
            yield

    def run(
        self,
        name: str,
        inputs: Mapping[str, Any],
        kind: type[Result],
        make: Callable[[Path], Result],
        outputs: Sequence[str] = (),
    ) -> Result:
        """The result of the step ``name``, by ``make`` unless made from the same ``inputs`` (JSON values) by this version.

        ``make`` gets the folder of the step, which has what an interrupted run with the same inputs left there, and is empty
        after one with others. ``outputs``: files in it without which the step is not done.
        """
        folder, marker = self.work / name, self.work / STEPS / f"{name}.json"
        given = json.loads(json.dumps({**inputs, "version": __version__}, default=str))
        known = read_json(marker) if marker.exists() else {}
        try:
            before = known.get("given", {})
            if before == given and "result" in known and all((folder / f).is_file() for f in outputs):
                result = kind.model_validate(known["result"])
                self.tell(name, f"{result} (done before)")
                return result
            changed = [key for key in given if known and before.get(key) != given[key]]
        except (AttributeError, ValidationError):
            raise InvalidInput(f"{marker}: is of another version; remove it to do the step again") from None
        if before != given:
            shutil.rmtree(folder, ignore_errors=True)
            if changed:
                self.tell(name, f"anew: {', '.join(changed)} changed")
        _write(marker, {"given": given})
        folder.mkdir(exist_ok=True)
        started = time.monotonic()
        result = make(folder)
        _write(marker, {"given": given, "result": json.loads(result.model_dump_json())})
        if not any(folder.iterdir()):
            folder.rmdir()
        self.tell(name, f"{result} ({time.monotonic() - started:.0f} s)")
        return result


def work_folder(work: Path | None, out: Path, what: str) -> Path:
    work = work or out.with_name(f"{out.name}.work")
    if out.absolute() in (work.absolute(), *work.absolute().parents):
        raise InvalidInput(f"--work {work}: expected a folder outside of the {what} --out {out}")
    return work


def file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(content))
