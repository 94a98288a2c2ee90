# SPDX-License-Identifier: Apache-2.0
"""Manual review of generated pictures, keep or drop: one line per decision, to survive a kill."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import MOST_JSON, read_bytes, shown
from sticker_uq.lab.datasets.manifest import MANIFEST
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput

REVIEW = "review.jsonl"
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
Verdict = Literal["keep", "drop", "undecided"]
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Picture:
    """A generated picture under review by its name below ``images/``, with its prompt, empty if unknown."""

    name: str
    prompt: str
    verdict: Verdict


class Review:
    """Review of the generated pictures in ``folder``/images, decisions in ``folder``/review.jsonl."""

    def __init__(self, folder: Path) -> None:
        """Raises InvalidInput for a folder without pictures and for an invalid review.jsonl or manifest.jsonl."""
        self._images, self._file = folder / "images", folder / REVIEW
        names = sorted(
            p.name for p in self._images.glob("*") if p.suffix.lower() in _SUFFIXES and p.is_file()
        )
        if not names:
            raise InvalidInput(
                f"{self._images}: no pictures, expected those of `sticker-uq dataset generate`"
            )
        nameless = next((name for name in names if not name.isprintable()), None)
        if nameless is not None:  # no page can show it or ask for it
            raise InvalidInput(
                f"{self._images}: {printable(nameless)}: rename it; expected a name of printable characters"
            )
        prompts = {
            Path(line["file"]).name: str(line["prompt"]).encode("utf-8", "replace").decode()
            for line in _lines(folder / MANIFEST)
            if isinstance(line.get("file"), str) and "prompt" in line
        }
        self._pictures = {name: Picture(name, prompts.get(name, ""), "undecided") for name in names}
        for line in _lines(self._file):
            if line.get("verdict") not in VERDICTS or not isinstance(line.get("picture"), str):
                raise InvalidInput(
                    f"{self._file}: {shown(line)}: expected a picture and one of {', '.join(VERDICTS)}"
                )
            self._note(line["picture"], line["verdict"])

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All reviewed pictures by their names."""
        return tuple(self._pictures.values())

    def count(self, verdict: Verdict) -> int:
        """How many reviewed pictures have that verdict."""
        return sum(picture.verdict == verdict for picture in self._pictures.values())

    def path(self, name: str) -> Path:
        """Path of the reviewed picture ``name``; raises InvalidInput for an unknown name."""
        if name not in self._pictures:
            raise InvalidInput(f"picture {name!r}: expected one in {self._images}")
        return self._images / name

    def decide(self, name: str, verdict: str) -> None:
        """Set the review's verdict of a picture and sync it to disk.

        Raises InvalidInput as :meth:`path` does, and for an unknown verdict.
        """
        self.path(name)
        if verdict not in VERDICTS:
            raise InvalidInput(f"verdict {verdict!r}: expected one of {', '.join(VERDICTS)}")
        with self._file.open("a+b") as stream:
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)  # the last line may be truncated
            stream.write(
                json.dumps({"picture": name, "verdict": verdict}, ensure_ascii=False).encode() + b"\n"
            )
            stream.flush()
            os.fsync(stream.fileno())
        self._note(name, verdict)

    def export(self, target: Path) -> int:
        """Copy the pictures that the review keeps to ``target``/images, remove copies of others there; returns the number of
        those kept.

        Raises InvalidInput, and changes nothing, when another picture there has the name of one that is kept.
        """
        (target / "images").mkdir(parents=True, exist_ok=True)
        missing, dropped = [], []
        for picture in self._pictures.values():
            source, copy = self.path(picture.name), target / "images" / picture.name
            if not os.path.lexists(copy):
                missing += [(source, copy)] if picture.verdict == "keep" else []
            elif not (copy.is_file() and filecmp.cmp(source, copy, shallow=False)):
                if picture.verdict == "keep":
                    raise InvalidInput(f"{copy}: is another picture than {source}; choose another folder")
            elif picture.verdict != "keep":
                dropped.append(copy)
        for source, copy in missing:
            with source.open("rb") as original, atomic_write(copy) as stream:
                shutil.copyfileobj(original, stream)
        for copy in dropped:
            copy.unlink()
        return self.count("keep")

    def _note(self, name: str, verdict: Any) -> None:
        if name in self._pictures:  # a picture may have been deleted since
            before = self._pictures[name]
            self._pictures[name] = Picture(name, before.prompt, verdict)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file of lines, none without a file; a truncated last line is ignored."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(read_bytes(path, MOST_JSON).split(b"\n")[:-1], 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise InvalidInput(f"{path}: line {number}: expected a JSON object")
        found.append(value)
    return found
