# SPDX-License-Identifier: Apache-2.0
"""Steps are done once for the same inputs, whenever they were interrupted."""

from pathlib import Path

import pytest

from sticker_uq.lab.kept_pieces import StepResult, Steps
from sticker_uq.scene import InvalidInput


class Counted(StepResult):
    number: int
    rate: float = float("nan")

    def __str__(self) -> str:
        return f"{self.number}"


class Killed(BaseException):
    pass


def test_a_step_is_done_once_for_the_same_inputs(tmp_path: Path) -> None:
    said: list[tuple[str, bool]] = []
    calls: list[int] = []

    def make(folder: Path) -> Counted:
        calls.append(1)
        (folder / "made").write_text("")
        return Counted(number=len(calls))

    def run(value: int) -> Counted:
        steps = Steps(tmp_path / "work", lambda name, line, seconds, before: said.append((line, before)))
        return steps.run("one", {"value": value}, Counted, make, ("made",))

    assert [run(1).number, run(1).number, run(2).number, run(1).number] == [1, 1, 2, 3]
    (tmp_path / "work" / "one" / "made").unlink()
    assert run(1).number == 4
    assert said == [("1", False), ("1", True), ("2", False), ("3", False), ("4", False)]


def test_an_interrupted_step_finds_what_it_left_but_not_what_other_inputs_left(tmp_path: Path) -> None:
    found: list[list[str]] = []

    def make(folder: Path) -> Counted:
        found.append([path.name for path in folder.iterdir()])
        (folder / "state").write_text("half")
        if len(found) < 3:
            raise Killed
        return Counted(number=1)

    for value in (1, 1):
        with pytest.raises(Killed):
            Steps(tmp_path).run("one", {"value": value}, Counted, make)
    Steps(tmp_path).run("one", {"value": 2}, Counted, make)
    assert found == [[], ["state"], []]


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="no steps of an earlier call"):
        Steps(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_makes_a_step_run_anew_is_said(tmp_path: Path) -> None:
    noted: list[str] = []

    def run(**inputs: object) -> None:
        steps = Steps(tmp_path, note=lambda name, line: noted.append(f"{name} {line}"))
        steps.run("train", inputs, Counted, lambda folder: Counted(number=1))

    settings = {"epochs": 10, "start": "packaged"}
    run(learn="a" * 64, settings=settings)
    run(learn="a" * 64, settings=settings)
    assert noted == []
    run(learn="a" * 64, settings={**settings, "epochs": 40})
    run(learn="b" * 64, settings={**settings, "epochs": 40})
    assert noted == ["train anew: settings changed", "train anew: learn changed"]
