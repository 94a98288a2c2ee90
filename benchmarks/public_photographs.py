"""Public sets of labelled photographs through the whole way: import, qualify, and what uncertainty is worth on them.

    python -m benchmarks.public_photographs --work FOLDER --out benchmarks/results/public_photographs.json

``public_photographs.yaml`` lists the sets and what their classes stand for. FOLDER, outside the repository, keeps the photographs,
weights and assessments: an interrupted run continues there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.photographs import sparse_clone
from sticker_uq.scene import InvalidInput

SOURCES = Path(__file__).with_suffix(".yaml")
SPLIT = "0.45,0.275,0.275"
"""Shares of the pictures to learn from, and of two parts that are held out; those are drawn together for the splits."""
EPOCHS = 15
ALPHAS, BETA = (0.1, 0.05), 0.5


class LabelledSet(BaseModel):
    """A public set of labelled photographs in ``folders`` of a repository of GitHub, and what its ``classes`` stand for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z]+$")
    title: str
    repository: str
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    folders: tuple[str, ...] = Field(min_length=1)
    licence: str
    classes: dict[str, Literal["sticker", "logo", "ignore"]]


def labelled_sets(path: Path = SOURCES) -> list[LabelledSet]:
    """The list of sets in ``path``."""
    return [LabelledSet.model_validate(one) for one in yaml.safe_load(path.read_text(encoding="utf-8"))]


def download(source: LabelledSet, folder: Path) -> None:
    """Put the files of ``source`` into the new ``folder``, whole or not at all; InvalidInput when they cannot be had."""
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as scratch:
        clone = Path(scratch) / "clone"
        sparse_clone(source.repository, source.commit, source.folders, clone)
        shutil.rmtree(clone / ".git")
        clone.replace(folder)


def prepare(source: LabelledSet, work: Path) -> None:
    """Download, import and qualify ``source`` in the folder ``work``; what is there already is not made again.

    InvalidInput when a command of the product ends with an error.
    """
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "source").is_dir():
        download(source, work / "source")
    if not (work / "data").is_dir():
        meanings = (f"--class={name}={meaning}" for name, meaning in source.classes.items())
        _product(
            "dataset",
            "import",
            work / "source",
            "--split",
            SPLIT,
            "--repair",
            "--out",
            work / "data",
            *meanings,
        )
    levels = ("--alpha", ALPHAS[0], "--beta", BETA)
    training = ("--start", "packaged", "--epochs", EPOCHS)
    _product(
        "qualify",
        "--data",
        work / "data",
        "--out",
        work / "bundle",
        *levels,
        *training,
        "--no-robustness",
        ends=(0, 1),
    )


def _product(*arguments: object, ends: Iterable[int] = (0,)) -> None:
    command = [sys.executable, "-m", "sticker_uq.cli", *map(str, arguments)]
    status = subprocess.run(command, check=False).returncode
    if status not in ends:
        raise InvalidInput(f"sticker-uq {' '.join(command[3:])}: ended with exit status {status}")


def main() -> int:
    """Measure every set and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for photographs, weights and assessments"
    )
    chosen = parser.parse_args()
    for source in labelled_sets():
        prepare(source, chosen.work / source.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
