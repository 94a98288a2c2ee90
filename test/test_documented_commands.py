# SPDX-License-Identifier: Apache-2.0
"""The shell commands of README.md, the tutorials and the how-tos work as their pages have them, from the first to the last.

A page is one bash, in a folder of its own with what the page supposes its reader has. Everything that ``sticker-uq`` does
there happens in the process of the test, which has loaded PyTorch already.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.gate.audit import AuditLog
from sticker_uq.io.coco import write_coco
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.novelty.network import packaged_file
from test.helpers.documented_commands import (
    NEEDS,
    PAGES,
    ROOT,
    Command,
    File,
    WrongNote,
    all_commands,
    missing_test,
    read_page,
    with_table,
)
from test.helpers.recordings import record

pytestmark = pytest.mark.usefixtures("one_thread")

SSDLITE = "ssdlite320_mobilenet_v3_large"
SECRET = "a secret of twenty characters"
FORWARD = """#!/bin/bash
printf '%s\\0' "$STEP" "$PWD" "$@" > "$SUPPLIES/request"
echo >&"$REQUESTS"
read -r status <&"$REPLIES"
cat "$SUPPLIES/output"
exit "$status"
"""
"""``sticker-uq`` of a page's shell: hands its arguments to the test, prints what that printed, ends as that ended."""


def rendered(folder: Path, count: int, first: int) -> None:
    """A COCO folder of small laptops, of which every second has two stickers."""
    seeds = range(first, first + count)
    write_coco(
        folder, (encode_scene(n, render(sample_scene(n, stickers=2 * (n % 2)), (320, 240))) for n in seeds)
    )


def copied(source: Path | None, target: Path) -> Path:
    """``target``, a copy of a file or folder."""
    assert source is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target


class Supplies:
    """Runs pages; keeps what several of them need, made when the first one needs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "sticker-uq").write_text(FORWARD)
        (folder / "bin" / "sticker-uq").chmod(0o755)
        cache = {"cache": str(folder / "assessments.sqlite")}
        one = {"jobs": 1}  # a process loads PyTorch for seconds
        self._defaults = {
            "calibrate": cache | one,
            "replay": one,
            "dataset": {"render": one},
        }

    def _part(self, count: int, first: int) -> Path:
        folder = self.folder / f"laptops{first}_{count}"
        rendered(folder, count, first)
        return folder

    @cached_property
    def learn(self) -> Path:
        """Few laptops to train on."""
        return self._part(8, 300)

    @cached_property
    def fifty(self) -> Path:
        """As many as a novelty network needs."""
        return self._part(50, 600)

    @cached_property
    def calibrate(self) -> Path:
        """Laptops to calibrate on."""
        return self._part(44, 400)

    @cached_property
    def test(self) -> Path:
        """Laptops to test on."""
        return self._part(6, 500)

    @cached_property
    def best(self) -> Path:
        """Weights."""
        return copied(packaged_weights(SSDLITE), self.folder / "best.safetensors")

    @cached_property
    def novelty(self) -> Path:
        """Their novelty network."""
        return copied(packaged_file(SSDLITE), self.folder / "best_novelty.safetensors")

    @cached_property
    def recording(self) -> Path:
        """A recording of a laptop and a question."""
        return record(self.folder / "recording", 1)

    @cached_property
    def other_recording(self) -> Path:
        """One of another cell."""
        return record(self.folder / "other", 1, seed=1)

    @cached_property
    def bundle(self) -> Path:
        """A bundle without a guarantee."""
        made = self.folder / "bundle"
        options = ("--passes", "3", "--policy", str(self.policy), "--out", str(made))
        assert self.sticker_uq("bundle", "create", *options) == 0
        return made

    @property
    def policy(self) -> Path:
        """The packaged policy."""
        return ROOT / "config" / "policy.yaml"

    @property
    def cell(self) -> Path:
        """A parameter file of a cell."""
        return ROOT / "config" / "cell.yaml"

    @cached_property
    def run_script(self) -> Path:
        """``scripts/run`` of an environment that is active already."""
        script = self.folder / "run"
        script.write_text('#!/bin/bash\nexec "$@"\n')
        script.chmod(0o755)
        return script

    @cached_property
    def audit(self) -> Path:
        """An audit log of a gate that closed."""
        folder = self.folder / "audit"
        log = AuditLog(folder, 10**6)
        for kind in ("start", "gate", "stop"):
            log.add(kind, {"node": "/supervisor"})
        log.close()
        return folder

    @cached_property
    def export(self) -> Path:
        """What a labelling tool exported: COCO with classes of its own, two photographs of the first laptop.

        Most of the pictures are those of ``calibrate``, whose assessments are kept.
        """
        folder = self._part(54, 400)
        document = json.loads((folder / "annotations.json").read_text())
        for one in document["categories"]:
            one["name"] = {"sticker": "Aufkleber", "logo": "Marke"}[one["name"]]
        document["categories"].append({"id": 77, "name": "Schraube"})
        for number, image in enumerate(document["images"]):
            name = f"pc{max(number, 1):03d}_{number}{Path(image['file_name']).suffix}"
            (folder / "images" / Path(image["file_name"]).name).rename(folder / "images" / name)
            image["file_name"] = str(Path(image["file_name"]).with_name(name))
        (folder / "annotations.json").write_text(json.dumps(document))
        return folder

    def sticker_uq(self, *arguments: str) -> int:
        """The exit status of the command, whose output goes to the file that the page's shell prints."""
        result = CliRunner().invoke(
            app, arguments, input=f"{SECRET}\n{SECRET}\n", default_map=self._defaults, env={"COLUMNS": "150"}
        )
        (self.folder / "output").write_text(result.output)
        return result.exit_code

    def run(self, commands: list[Command], here: Path) -> None:
        """Run ``commands`` in one shell that starts in ``here``; fails with the first that ends as it should not."""
        transcript = self.folder / f"{here.name}.txt"
        requests, ask = os.pipe()
        replies, answer = os.pipe()
        environment = os.environ | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(here / "home"),
            "SUPPLIES": str(self.folder),
            "REQUESTS": str(ask),
            "REPLIES": str(replies),
        }
        with transcript.open("wb") as output:
            shell = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-o", "pipefail", "-c", script(commands, here)], cwd=here, env=environment,
                pass_fds=(ask, replies), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        os.close(ask)
        os.close(replies)
        try:
            with open(requests, "rb") as asked:
                for _ in asked:
                    os.write(answer, b"%d\n" % self._serve(commands))
            shell.wait()
        finally:
            os.close(answer)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # whatever a command that hangs has started
            shell.wait()
        assert shell.returncode == 0, transcript.read_text(errors="replace")[-4000:]

    def _serve(self, commands: list[Command]) -> int:
        step, folder, *arguments = (self.folder / "request").read_bytes().decode().split("\0")[:-1]
        command = commands[int(step)]
        os.chdir(folder)
        arguments = replaced(arguments, command.note("run with"))
        if until := command.note("until"):
            return self._until(until, arguments)
        return self.sticker_uq(*arguments)

    def _until(self, line: str, arguments: list[str]) -> int:
        """The exit status after Ctrl-C, pressed when the command has printed ``line``."""
        lines = []
        with subprocess.Popen(
            [sys.executable, "-m", "sticker_uq.cli", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            try:
                for printed in process.stdout:
                    lines.append(printed)
                    if line in printed:
                        break
            finally:
                process.send_signal(signal.SIGINT)
            lines += process.stdout
        (self.folder / "output").write_text("".join(lines))
        return process.returncode if any(line in printed for printed in lines) else 1


def script(commands: list[Command], here: Path) -> str:
    """The commands for bash. /data and /cell, which a test may not write to, lie below ``here``."""
    parts = ["mkdir -p $HOME"]
    for step, command in enumerate(commands):
        text = re.sub(r"(?<![\w$./])/(data|cell)/", lambda found: f"{here}/root/{found[1]}/", command.text)
        expected = command.note("exit status") or "0"
        told = shlex.quote(f"{command.where}: {text}: expected exit status {expected}, not ")
        parts.append(
            f"export STEP={step}\n{text}\nended=$?\n[ $ended = {expected} ] || {{ echo {told}$ended; exit 1; }}"
        )
    return "\n".join(parts)


def replaced(arguments: list[str], options: str) -> list[str]:
    """``arguments`` with the ``options`` in place of those of the same name, or after the others."""
    arguments = list(arguments)
    for option in re.split(r" (?=--)", options) if options else []:
        name, *values = shlex.split(option)
        if name not in arguments:
            arguments += [name, *values]
        elif values:
            place = arguments.index(name) + 1
            arguments[place : place + 1] = values
    return arguments


@pytest.fixture(scope="module")
def supplies(tmp_path_factory: pytest.TempPathFactory) -> Supplies:
    return Supplies(tmp_path_factory.mktemp("supplies"))


DATA = {"data/learn": "learn", "data/calibrate": "calibrate", "data/test": "test"}
TWO_CELLS = {"root/data/cell-1/a": "recording", "root/data/cell-2/b": "other_recording"}
WEIGHTS = {"weights/best.safetensors": "best", "weights/best_novelty.safetensors": "novelty"}
SUPPOSED: dict[str, dict[str, str]] = {
    "first_robot": DATA | {"data/learn": "fifty", "RECORDING": "recording"},
    "operator": {"root/cell/policy.yaml": "policy"},
    "simulation": {"out/demo/bag": "recording", "config/policy.yaml": "policy", "scripts/run": "run_script"},
    "fleet": TWO_CELLS | {"bundle": "bundle"},
    "import": {"RECORDING": "recording", "EXPORT": "export"} | WEIGHTS,
    "launch": {"your/bundle": "bundle"},
    "offline": TWO_CELLS
    | {
        "RECORDING_OR_FOLDER_OR_VIDEO": "recording",
        "COCO_FOLDER": "fifty",
        "data/test": "test",
        "BUNDLE": "bundle",
        "LABELLED": "calibrate",
        "FOLDER": "audit",
    },
    "policy": DATA | WEIGHTS | {"RECORDING": "recording", "cell.yaml": "cell"},
    "recording": {"root/data/2026-05-04": "recording"},
    "troubleshooting": {"RECORDING": "recording", "policy.yaml": "policy", "AUDIT_FOLDER": "audit"},
    "upgrade": {
        "RECORDING": "recording",
        "best.safetensors": "best",
        "policy.yaml": "policy",
        "AUDIT_FOLDER": "audit",
    },
    "weights": DATA,
}
"""What the reader of a page has before its first command, under the name that the page gives it."""


def run_page(supplies: Supplies, page: Path, here: Path, text: str | None = None) -> None:
    """Run the commands of ``page`` in the folder ``here``; ``text`` in place of what it has."""
    parts = read_page(page, text)
    for part in parts:
        if isinstance(part, File):
            (here / part.name).write_text(part.content)
    supplies.run([part for part in parts if isinstance(part, Command) and part.runs], here)


@pytest.fixture
def here(tmp_path: Path, ros_domain: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in a ROS domain of its own."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_work_in_their_order(page: Path, supplies: Supplies, here: Path) -> None:
    for name, what in SUPPOSED.get(page.stem, {}).items():
        copied(getattr(supplies, what), here / name)
    run_page(supplies, page, here)


STATUS = ROOT / "docs" / "status.md"


def test_the_page_of_the_status_says_what_no_test_runs() -> None:
    text = STATUS.read_text(encoding="utf-8")
    assert with_table(text) == text, "run: python -m test.helpers.documented_commands docs/status.md"
    commands = all_commands()
    assert sum(command.runs for command in commands) > len(commands) / 3
    assert NEEDS.keys() == {command.note("not run").removeprefix("needs ") for command in commands} - {""}
    assert SUPPOSED.keys() <= {command.page.stem for command in commands}


def test_one_shell_goes_through_a_page(supplies: Supplies, here: Path) -> None:
    text = """
<!-- file: notes.txt -->

```yaml
a: 1
```

    mkdir made && cd made
    export KEPT=../notes.txt

Then, in the same terminal, <!-- run with (--count): --count 1 --size 320x240 -->

    cat $KEPT > copy.txt
    sticker-uq dataset render --count 900 \\
        --out pictures          # a lot
    echo $(sticker-uq --version | wc -l) > /data/lines
"""
    (here / "root" / "data").mkdir(parents=True)
    run_page(supplies, PAGES[0], here, text)
    assert (here / "made" / "copy.txt").read_text() == "a: 1\n"
    assert len(list((here / "made" / "pictures" / "images").iterdir())) == 1
    assert (here / "root" / "data" / "lines").read_text() == "1\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sticker-uq audit verify nowhere", "nowhere: no such folder"),
        ("sticker-uq doctor --no-such-option", "No such option"),
        ("ros2-of-nobody topic list", "expected exit status 0, not 127"),
        ("cd nowhere", "README.md:3: cd nowhere: expected exit status 0, not 1"),
    ],
)
def test_a_command_that_fails_is_named_and_ends_its_page(
    line: str, said: str, supplies: Supplies, here: Path
) -> None:
    with pytest.raises(AssertionError) as failure:
        run_page(supplies, PAGES[0], here, f"\n\n    {line}\n    touch after\n")
    assert said in str(failure.value)
    assert not (here / "after").exists()


THIS = "test/test_documented_commands.py"


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ("<!-- not run: -->", "expected needs and one of"),
        ("<!-- not run -->", "expected <!-- KIND: TEXT -->"),
        ("<!-- not run: needs patience -->", "expected needs and one of"),
        ("<!-- not run: Docker -->", "expected needs and one of"),
        ("<!-- not run (ros2): needs Docker -->", "no command below has 'ros2'"),
        ("<!-- not run: needs Docker -->\n\nAnd then:", "not directly above a block"),
        ("<!-- never run: needs Docker -->", "unknown comment"),
        ("<!-- not run: needs Docker --> <!-- run with: --count 1 -->", "contradict each other"),
        ("<!-- run with: --count 1 -->\n<!-- run with: --size 9 -->", "twice for one command"),
        ("<!-- run with: count 1 -->", "expected options"),
        ("<!-- exit status: 1 -->", "does not say this to its reader"),
        ("<!-- run by: test/nowhere.py::test_it -->", "of a file that exists"),
        (f"<!-- run by: {THIS}::test_no_such_thing -->", "has no function 'test_no_such_thing'"),
        ("<!-- run by: test/geometry/test_pose.py::XXX -->", "has no function"),
    ],
)
def test_a_comment_that_says_nothing_known_is_refused(notes: str, said: str) -> None:
    with pytest.raises(WrongNote, match=re.escape(said)):
        read_page(PAGES[0], f"Do it:\n\n{notes}\n\n    sticker-uq evaluate --count 3\n")


def test_a_test_that_does_not_name_the_command_does_not_run_it() -> None:
    command = Command(PAGES[0], 1, "sticker-uq replay A --out B")
    name = "test_the_commands_of_a_page_work_in_their_order"
    assert missing_test(f"{THIS}::{name}", command) == ""
    other = Command(PAGES[0], 1, "ros2 launch sticker_uq " + "nothing" + ".launch.py")
    assert "does not name" in missing_test(f"{THIS}::{name}", other)


def test_options_take_the_place_of_those_of_the_same_name() -> None:
    told = ["train", "--data", "a b", "--epochs", "30", "--resume"]
    assert replaced(told, "") == told
    assert replaced(told, "--epochs 1 --near -1 --resume") == [
        *("train", "--data", "a b", "--epochs", "1", "--resume"),
        *("--near", "-1"),
    ]
