# SPDX-License-Identifier: Apache-2.0
"""Public photographs of things that the packaged weights were not trained on.

    python -m benchmarks.photographs --to FOLDER [--out benchmarks/results/photographs.csv]

``photographs.yaml`` lists the sources. Repositories are read with git at a fixed commit, only the files that are needed; sample
images are copied from installed packages. FOLDER then holds ``KIND/SOURCE-FOLDER-NAME``. With ``--out`` on how many of them the
shipped policies would let the arm remove something, under several limits on the distance of the scene, and how many rendered
laptops lie beyond each; no policy was fitted to or chosen on these laptops.
"""

import csv
import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.gate import Policy, judge
from sticker_uq.io.files import atomic_write
from sticker_uq.io.share import share_folder
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.perception.novelty.network import packaged_network
from sticker_uq.scene import InvalidInput, Outcome
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.scene_sampling import Profile

SOURCES = Path(__file__).with_suffix(".yaml")
_SUFFIXES = {".jpg", ".jpeg", ".png"}
_GITHUB = "https://github.com"
TEST: dict[Profile, tuple[int, tuple[int, int]]] = {
    "study": (134_000_000, (1632, 1366)),
    "large": (134_100_000, (960, 720)),
}
"""First seed and size of the rendered laptops of each profile."""
LAPTOPS = 200
CAMERA = "simulated_camera"
"""Frame of the images: a policy that was made for it blocks every scene of another."""
POLICIES = {"config/limits.yaml": (0.5, 0.57, 0.65, math.inf), "config/policy.yaml": ()}
COLUMNS = ("policy", "limit", "photographs", "released on", "laptops of each", *(f"{p} beyond" for p in TEST))


class Source(BaseModel):
    """Photographs of one kind in one folder of a repository of GitHub, or of an installed Python package."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = Field(pattern=r"^[a-z]+$")
    repository: str = ""
    commit: str = Field(default="", pattern=r"^([0-9a-f]{40})?$")
    package: str = ""
    folder: str
    count: int = Field(default=0, ge=0)
    files: tuple[str, ...] = ()
    licence: str

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.repository) == bool(self.package) or bool(self.repository) != bool(self.commit):
            raise ValueError("expected either a repository with a commit or a package")
        if bool(self.count) == bool(self.files):
            raise ValueError("expected either a count or a list of files")
        return self

    @property
    def label(self) -> str:
        """The source in the file names of its photographs."""
        return re.sub(r"\W+", "-", (self.repository or self.package).split("/")[-1]).lower()

    def choose(self, names: Iterable[str]) -> list[str]:
        """The files to take of ``names``, all files of the folder. InvalidInput when some are missing."""
        pictures = sorted(name for name in names if Path(name).suffix.lower() in _SUFFIXES)
        missing = [name for name in self.files if name not in pictures]
        if missing or len(pictures) < self.count:
            found = f"{', '.join(missing)} missing" if missing else f"{len(pictures)} pictures"
            wanted = "all files that the list names" if missing else f"at least {self.count}"
            raise InvalidInput(f"{self.repository or self.package}/{self.folder}: {found}, expected {wanted}")
        if self.files:
            return list(self.files)
        return [pictures[i * len(pictures) // self.count] for i in range(self.count)]


def sources(path: Path = SOURCES) -> list[Source]:
    """The list of sources in ``path``."""
    return [Source.model_validate(entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8"))]


def download(folder: Path, source: Source) -> int:
    """Put the photographs of ``source`` into ``folder``; how many there are.

    InvalidInput when the repository, the package or a file cannot be had; then ``folder`` gets none of them. OSError when
    the disk fails.
    """
    target = folder / source.kind
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as scratch:
        there, chosen = (_clone if source.repository else _package)(source, Path(scratch) / "clone")
        for name in chosen:
            copied = shutil.copyfile(there / name, Path(scratch) / "copy")
            os.replace(copied, target / f"{source.label}-{source.folder.split('/')[-1]}-{name}")
    return len(chosen)


def load_photographs(folder: Path) -> Iterator[tuple[str, str, NDArray[np.uint8]]]:
    """Kind, name and image (H, W, 3) uint8 BGR of every photograph in ``folder``, as :func:`download` put them there.

    In the order of kinds and names. InvalidInput when there are none, or a file cannot be decoded.
    """
    kinds = sorted(p for p in folder.iterdir() if p.is_dir() and p.name[0] != ".") if folder.is_dir() else []
    files = [
        file
        for kind in kinds
        for file in sorted(kind.iterdir())
        if file.suffix.lower() in _SUFFIXES and file.name[0] != "."
    ]
    if not files:
        raise InvalidInput(f"{folder}: no photographs, run: python -m benchmarks.photographs --to {folder}")
    for file in files:
        image = cv2.imread(str(file), cv2.IMREAD_COLOR)
        if image is None:
            raise InvalidInput(
                f"{file}: cannot be decoded, expected a JPEG or PNG image; delete it and download again"
            )
        yield file.parent.name, file.name, np.asarray(image, np.uint8)


def _package(source: Source, _scratch: Path) -> tuple[Path, list[str]]:
    spec = importlib.util.find_spec(source.package)
    if spec is None or spec.origin is None:
        raise InvalidInput(f"{source.package}: not installed, run: pip install -r requirements.txt")
    there = Path(spec.origin).parent / source.folder
    return there, source.choose(os.listdir(there))


def _clone(source: Source, scratch: Path) -> tuple[Path, list[str]]:
    """The folder of ``source`` in a clone below ``scratch``, with the chosen files only, and their names."""
    sparse_clone(source.repository, source.commit, [source.folder], scratch, source.choose)
    there = scratch / source.folder
    return there, source.choose(os.listdir(there))


def sparse_clone(
    repository: str,
    commit: str,
    folders: Sequence[str],
    scratch: Path,
    choose: Callable[[Iterable[str]], Iterable[str]] = lambda names: names,
) -> None:
    """A clone of depth 1 at the new folder ``scratch``, with the files of ``folders`` that ``choose`` returns of their names.

    InvalidInput when the repository of GitHub, its ``commit`` or a folder cannot be had.
    """

    def git(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            ["git", "-C", str(scratch), "-c", "advice.detachedHead=false", *arguments],
            input=given,
            capture_output=True,
            text=True,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            check=False,
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise InvalidInput(
                f"{repository}: git {arguments[0]} failed ({said[0]}), expected commit {commit[:12]} of "
                f"{_GITHUB}/{repository}; check the network"
            )
        return done.stdout

    scratch.mkdir()
    git("init", "--quiet")
    git("remote", "add", "origin", f"{_GITHUB}/{repository}")
    git("fetch", "--quiet", "--depth", "1", "--filter=blob:none", "origin", commit)
    wanted = []
    for folder in folders:
        listed = git("ls-tree", "--name-only", "-z", commit, f"{folder}/").split("\0")
        chosen = choose(path.rsplit("/", 1)[-1] for path in listed if path)
        wanted += [f"/{folder}/{name}\n" for name in chosen]
    git("sparse-checkout", "set", "--no-cone", "--stdin", given="".join(wanted))
    git("checkout", "--quiet", commit)


def measure(folder: Path, perception: Perception) -> Iterator[tuple[str | float, ...]]:
    """The rows below ``COLUMNS``: of the photographs in ``folder`` and of rendered laptops.

    Their limits are distances by the network's reference, as ``POLICIES`` has them, not shares of the network's limit.
    """
    network = packaged_network(perception.detector)
    assert network is not None
    photographs = [perception.assess(image, 1, CAMERA) for _, _, image in load_photographs(folder)]
    laptops = {
        profile: [
            perception.assess(render(sample_scene(seed, profile=profile), size).image, 1, CAMERA)
            for seed in range(first, first + LAPTOPS)
        ]
        for profile, (first, size) in TEST.items()
    }
    for file, limits in POLICIES.items():
        shipped = Policy.load(share_folder() / file)
        if refusal := shipped.refusal(photographs[0]):
            raise InvalidInput(f"{file} is not for these scenes: {refusal}")
        for limit in limits or (shipped.max_scene_distance * network.limit,):
            highest = limit / network.limit
            policy = shipped.model_copy(update={"max_scene_distance": highest})
            released = sum(judge(scene, policy).outcome is Outcome.WORK for scene in photographs)
            beyond = [sum(not scene.scene_distance <= highest for scene in laptops[p]) for p in TEST]
            yield file, "none" if math.isinf(limit) else limit, len(photographs), released, LAPTOPS, *beyond


def main() -> int:
    """Download all photographs of the list, and measure."""
    parser = argument_parser(__doc__)
    parser.add_argument("--to", type=Path, required=True, help="folder for the photographs")
    parser.add_argument(
        "--out", type=result_file, help="CSV file of what the shipped policies release on them"
    )
    chosen = parser.parse_args()
    try:
        total = 0
        for source in sources():
            count = download(chosen.to, source)
            total += count
            print(
                f"{source.kind}: {count} from {source.repository or source.package}, {source.licence}",
                flush=True,
            )
        print(f"{total} photographs in {chosen.to}", flush=True)
        if chosen.out is not None:
            rows = list(measure(chosen.to, load_perception(PerceptionSettings(device="cpu"))))
            with atomic_write(chosen.out, "w") as stream:
                csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *rows])
    except (InvalidInput, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
