# SPDX-License-Identifier: Apache-2.0
"""The shell commands of README.md, the tutorials and the how-tos, and what their pages say of running them in a test.

    python -m test.helpers.documented_commands docs/status.md

writes the table of commands that no test runs between the two marks of the document. docs/contributing.md describes the comments
that :func:`read_page` reads.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from test.helpers.gate_document import inserted, rewrite

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
    *sorted((ROOT / "docs/howto").glob("*.md")),
]
BEGIN, END = "<!-- commands that no test runs: begin -->", "<!-- commands that no test runs: end -->"
NEEDS = {
    "ROS 2's command line": "a ROS 2 from apt; `test/launch` runs the launch files where there is one",
    "a robot's workspace": "Ubuntu 24.04 with ROS 2 Jazzy from apt, the network",
    "root": "rights that a test must not have",
    "Docker": "Docker, the image `ros:jazzy`",
    "processor time": "minutes to hours of it, for a training images in thousands",
    "a cluster": "a Ray cluster of several machines",
    "a person": "somebody who answers; in `test/console/test_cell.py` a browser does",
    "a checkout of its own": "the test would run itself, or change its own environment",
}
"""What ``<!-- not run: needs ... -->`` may name, and the words of the table for it."""

_NOTE = re.compile(r"<!-- ([a-z ]+?)(?: \(([^)]+)\))?: (.*?) ?-->")
_COMMENT = re.compile(r"<!--.*?-->")
_FENCE = re.compile(r" {0,3}```(\w*)")
_SHELL = ("", "sh", "bash", "shell", "console")
_SINGLE = ("not run", "run by", "until")


class WrongNote(ValueError):
    """A comment of a page that says nothing about the block below it, or something that is not known."""


@dataclass(frozen=True)
class Note:
    """A comment above a block: ``<!-- KIND (PART): TEXT -->``; it is for the commands with this ``part``."""

    line: int
    kind: str
    part: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command as its page has it, on one line, with what the comments above its block say of it."""

    page: Path
    line: int
    text: str
    notes: tuple[Note, ...] = ()

    @property
    def where(self) -> str:
        """Page and line."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def note(self, kind: str) -> str:
        """The text of its comment of this kind, or an empty text."""
        return next((note.text for note in self.notes if note.kind == kind), "")

    @property
    def runs(self) -> bool:
        """Whether the test of its page runs it."""
        return not self.note("not run") and not self.note("run by")


@dataclass(frozen=True)
class File:
    """A block that the reader writes into a file."""

    line: int
    name: str
    content: str


def read_page(page: Path, text: str | None = None) -> list[Command | File]:
    """The commands and files of ``page`` in its order; ``text`` in place of what the page has.

    Raises :class:`WrongNote` for a comment of an unknown form, one that is not directly above a block, and one for
    commands that the block does not have.
    """
    text = page.read_text(encoding="utf-8") if text is None else text
    lines = text.splitlines()
    found: list[Command | File] = []
    waiting: list[Note] = []
    for block in _blocks(lines):
        if isinstance(block, tuple):
            number, notes = block
            if waiting and not notes and lines[number - 1].strip():
                raise WrongNote(f"{page.name}:{waiting[0].line}: not directly above a block")
            waiting = [*waiting, *notes]
        else:
            found += _noted(page, block, waiting)
            waiting = []
    if waiting:
        raise WrongNote(f"{page.name}:{waiting[0].line}: not directly above a block")
    for command in found:
        if isinstance(command, Command):
            _check(command, _COMMENT.sub("", text))
    return found


@dataclass(frozen=True)
class _Block:
    line: int
    kind: str
    lines: list[str]


def _blocks(lines: list[str]) -> Iterator[_Block | tuple[int, list[Note]]]:
    """Blocks of code, and the lines between them with the comments in each."""
    number = 0
    while number < len(lines):
        start = number
        if fence := _FENCE.match(lines[start]):
            number = next(n for n in range(start + 1, len(lines)) if _FENCE.match(lines[n]))
            yield _Block(start + 2, fence[1], lines[start + 1 : number])
            number += 1
        elif lines[start].startswith("    ") and _ends_paragraph(lines[start - 1]):
            while number < len(lines) and lines[number].startswith("    "):
                number += 1
            yield _Block(start + 1, "", [line.strip() for line in lines[start:number]])
        else:
            number += 1
            yield number, _notes(number, lines[start])


def _ends_paragraph(line: str) -> bool:
    return not line.strip() or line.startswith("<!--")


def _notes(number: int, line: str) -> list[Note]:
    notes = []
    for comment in _COMMENT.findall(line):
        note = _NOTE.fullmatch(comment)
        if note is None:
            raise WrongNote(f"line {number}: {comment}: expected <!-- KIND: TEXT -->")
        if note[3] not in ("begin", "end"):  # the marks of a generated table
            notes.append(Note(number, note[1], note[2] or "", note[3]))
    return notes


def _noted(page: Path, block: _Block, notes: list[Note]) -> list[Command | File]:
    if [note.kind for note in notes] == ["file"]:
        return [File(block.line, notes[0].text, "\n".join(block.lines) + "\n")]
    if block.kind not in _SHELL:
        if notes:
            raise WrongNote(
                f"{page.name}:{notes[0].line}: expected a comment 'file' above a block of {block.kind}"
            )
        return []
    commands = [
        Command(page, line, text, tuple(note for note in notes if note.part in text))
        for line, text in _joined(block)
    ]
    for note in notes:
        if not any(note in command.notes for command in commands):
            raise WrongNote(f"{page.name}:{note.line}: no command below has {note.part!r}")
    return [*commands]


def _joined(block: _Block) -> Iterator[tuple[int, str]]:
    """Line and text of each command; a backslash continues one on the next line."""
    text, first = "", 0
    for number, line in enumerate(block.lines, block.line):
        first = first if text else number
        text += line.strip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        if text and not text.startswith("#"):
            yield first, text
        text = ""


def _check(command: Command, page: str) -> None:
    """Raises :class:`WrongNote` when a comment of the command is not of a known form; ``page``: what the reader sees of it."""
    kinds = Counter(note.kind for note in command.notes)
    for note in command.notes:
        said = f"{command.where}: {note.kind}: {note.text}"
        if note.kind == "not run":
            need = note.text.removeprefix("needs ")
            if need == note.text or need not in NEEDS:
                raise WrongNote(f"{said}: expected needs and one of {', '.join(NEEDS)}")
        elif note.kind == "run by":
            if problem := missing_test(note.text, command):
                raise WrongNote(f"{said}: {problem}")
        elif note.kind == "run with":
            if not note.text.startswith("--") or "sticker-uq" not in command.text:
                raise WrongNote(f"{said}: expected options, and a command of sticker-uq")
        elif note.kind == "exit status":
            if f"exit status {note.text}" not in page:
                raise WrongNote(f"{said}: the page does not say this to its reader")
        elif note.kind != "until" or not note.text:
            raise WrongNote(f"{said}: unknown comment")
        if kinds[note.kind] > 1:
            raise WrongNote(f"{said}: twice for one command")
    if sum(kinds[kind] for kind in _SINGLE) > 1 or (not command.runs and len(kinds) > 1):
        raise WrongNote(f"{command.where}: {', '.join(kinds)} contradict each other")


def name_of(text: str) -> list[str]:
    """The words that name the command in a test: the commands of sticker-uq, a script, module, or launch file."""
    words = shlex.split(text, comments=True)
    while words and (re.match(r"[A-Z_]+=", words[0]) or words[0] == "scripts/run"):
        words = words[1:]
    if words[0] == "sticker-uq":
        return [word for word in words[1:3] if re.fullmatch(r"[a-z-]+", word) and word[0] != "-"]
    if words[:2] == ["python", "-m"]:
        return [words[2].rpartition(".")[2]]
    if words[:2] in (["ros2", "launch"], ["ros2", "run"]):
        return [words[3]]
    return [Path(words[0]).name]


def missing_test(test: str, command: Command) -> str:
    """What is wrong with the test ``FILE::NAME`` that is said to run ``command``; empty when it exists and names it."""
    path, _, name = test.partition("::")
    if not re.fullmatch(r"test/[\w/]+\.py", path) or not (ROOT / path).is_file():
        return "expected test/FILE.py::NAME of a file that exists"
    source = (ROOT / path).read_text(encoding="utf-8")
    if name not in {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}:
        return f"{path} has no function {name!r}"
    # the group, then its command: a test may call the second one's application directly
    *_, last = name_of(command.text)
    return "" if re.search(rf"\b{re.escape(last)}\b", source) else f"{path} does not name {last!r}"


def all_commands() -> list[Command]:
    """The commands of all pages."""
    return [part for page in PAGES for part in read_page(page) if isinstance(part, Command)]


def table(commands: Iterable[Command]) -> str:
    """For each need the commands that no test runs for its sake, by page."""
    pages: dict[str, Counter[Path]] = defaultdict(Counter)
    for command in commands:
        if reason := command.note("not run"):
            pages[reason.removeprefix("needs ")][command.page] += 1
    rows = ["| commands that need | of the page | missing to run them |", "|---|---|---|"]
    for need in sorted(pages, key=list(NEEDS).index):
        listed = ", ".join(f"{_link(page)} {count}" for page, count in pages[need].items())
        rows.append(f"| {need} | {listed} | {NEEDS[need]} |")
    return "\n".join(rows)


def _link(page: Path) -> str:
    if page.name == "README.md":
        return "README"
    return f"[{page.stem}]({page.relative_to(ROOT / 'docs').as_posix()})"


def with_table(document: str) -> str:
    """``document`` with the present table between its marks. Raises ``ValueError`` without the marks."""
    return inserted(document, f"{BEGIN}\n\n{table(all_commands())}\n\n{END}", BEGIN, END)


if __name__ == "__main__":
    rewrite(__doc__, with_table)
