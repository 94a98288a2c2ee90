# SPDX-License-Identifier: Apache-2.0
"""The shell commands of README.md and the tutorials work as their pages have them, from the first to the last.

A page runs in a folder of its own with what it supposes its reader has. ``sticker-uq`` runs in the process of the test, which has
loaded PyTorch already. docs/contributing.md describes the comments of a page.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab_helpers.scenes import rendered
from sticker_uq.cli import app
from sticker_uq_lab.cli import dil
from sticker_uq_lab.training import novelty_training, starts
from test.helpers.models import small_novelty, small_weights
from test.helpers.recordings import record

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]
FEWEST = 30
SECRET = "a secret of twenty characters\n"
BLOCK = re.compile(
    r"((?:^<!--[^\n]*-->\n)*)\n*(?:^```(\w*)\n(.*?)^```$|(?:(?<=\n\n))((?:^    [^\n]*\n)+))", re.M | re.S
)
NOTE = re.compile(r"<!-- (not run|run by|run with|file)(?: \(([^)]+)\))?: (.*?) ?-->")


class Supplies:
    """What readers of the pages have, made when the first one needs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _laptops(self, count: int, first: int) -> Path:
        seeds, folder = range(first, first + count), self.folder / f"laptops{first}"
        return rendered(folder, seeds, (320, 240), stickers=lambda number: 2 * (number % 2))

    @cached_property
    def learn(self) -> Path:
        """As many as a novelty network needs here."""
        return self._laptops(FEWEST, 600)

    @cached_property
    def calibrate(self) -> Path:
        """Laptops to calibrate on."""
        return self._laptops(44, 400)

    @cached_property
    def test(self) -> Path:
        """Laptops to test on."""
        return self._laptops(6, 500)

    @cached_property
    def recording(self) -> Path:
        """A recording of a laptop and a question."""
        return record(self.folder / "recording", 1)

    @cached_property
    def weights(self) -> Path:
        """To start a training from, with a smaller input."""
        return small_weights(self.folder)

    @cached_property
    def novelty(self) -> Path:
        """Its novelty network."""
        return small_novelty(self.folder)

    policy = ROOT / "config" / "limits.yaml"
    reference = ROOT / "config" / "policy.reference.csv"


SUPPOSED = {
    "first_robot": {
        "data/learn": "learn",
        "data/calibrate": "calibrate",
        "data/test": "test",
        "RECORDING": "recording",
    },
    "operator": {"cell/policy.yaml": "policy"},
    "simulation": {
        "out/demo/bag": "recording",
        "config/policy.yaml": "policy",
        "config/policy.reference.csv": "reference",
    },
}
"""What the reader of a page has before its first command, under the name that the page gives it."""


@pytest.fixture(scope="module")
def supplies(tmp_path_factory: pytest.TempPathFactory) -> Supplies:
    return Supplies(tmp_path_factory.mktemp("supplies"))


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a page with the options that the test gives them; a file to write is the command ``file NAME``."""
    read = 0
    for block in BLOCK.finditer(text):
        notes = NOTE.findall(block[1])
        read += len(notes)
        if [kind for kind, _, _ in notes] == ["file"]:
            yield f"file {notes[0][2]}", block[3]
        elif not block[2]:
            for line in (block[3] or block[4]).replace("\\\n", " ").splitlines():
                mine = {kind: told for kind, part, told in notes if part in line}
                if line.strip() and not mine.keys() & {"not run", "run by"}:
                    yield line.strip(), mine.get("run with", "")
    others = len(
        re.findall("<!-- (?:source:|table:|reference:|end -->)", text)
    )  # test_sources.py, benchmarks/tables.py
    assert read == text.count("<!--") - others, "a comment that is not known, or not directly above a block"


def replaced(arguments: list[str], options: str) -> list[str]:
    """``arguments`` with the ``options`` in place of those of the same name, or after the others."""
    for option in re.split(r" (?=--)", options) if options else []:
        name, *values = shlex.split(option)
        place = arguments.index(name) if name in arguments else len(arguments)
        arguments = [*arguments[:place], name, *values, *arguments[place + 1 + len(values) :]]
    return arguments


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_work_in_their_order(page, supplies, tmp_path, ros_domain, monkeypatch):
    monkeypatch.setattr(novelty_training, "FEWEST", FEWEST)
    monkeypatch.setattr(starts, "packaged_weights", lambda name: supplies.weights)
    monkeypatch.setattr(dil, "packaged_file", lambda name: supplies.novelty)
    monkeypatch.chdir(tmp_path)
    for name, what in SUPPOSED.get(page.stem, {}).items():
        source = getattr(supplies, what)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    for command, told in commands(page.read_text(encoding="utf-8")):
        if command.startswith("file "):
            (tmp_path / command.split()[1]).write_text(told)
            continue
        words = shlex.split(re.sub(r"(?<!\S)/cell/", f"{tmp_path}/cell/", command), comments=True)
        if words[:1] == ["scripts/run"]:
            words = words[1:]
        if words[:1] == ["sticker-uq"]:
            result = CliRunner().invoke(
                app, replaced(words[1:], told), input=2 * SECRET, default_map={"calibrate": {"jobs": 1}, "replay": {"jobs": 1}}
            )  # fmt: skip
            assert result.exit_code == 0, f"{command}: {result.output}"
        elif words:
            subprocess.run(words, check=True, cwd=tmp_path)


def test_a_comment_that_is_not_known_is_refused():
    assert list(commands("It:\n\n<!-- run with: --b 2 -->\n\n    sticker-uq a \\\n        --c\n")) == [
        ("sticker-uq a          --c", "--b 2")
    ]
    with pytest.raises(AssertionError, match="not known"):
        list(commands("It:\n\n<!-- never run: it -->\n\n    sticker-uq a\n"))
    assert replaced(["a", "--b", "1", "--c"], "--b 2 --d 3") == ["a", "--b", "2", "--c", "--d", "3"]
