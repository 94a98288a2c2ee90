# SPDX-License-Identifier: Apache-2.0
"""Steps are done once for the same inputs, whenever they were interrupted."""

from pathlib import Path

import pytest

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.kept_pieces import StepResult, Steps


class Counted(StepResult):
    number: int
    rate: float = float("nan")

    def __str__(self) -> str:
        return f"{self.number}"


class Killed(BaseException):
    pass


def test_a_step_is_done_once_for_the_same_inputs(tmp_path):
    said: list[str] = []
    calls: list[int] = []

    def make(folder: Path) -> Counted:
        calls.append(1)
        (folder / "made").write_text("")
        return Counted(number=len(calls))

    def run(value: int) -> Counted:
        steps = Steps(tmp_path / "work", lambda name, line: said.append(line))
        return steps.run("one", {"value": value}, Counted, make, ("made",))

    assert [run(1).number, run(1).number, run(2).number, run(1).number] == [1, 1, 2, 3]
    (tmp_path / "work" / "one" / "made").unlink()
    assert run(1).number == 4
    anew = "anew: value changed"
    assert said == ["1 (0 s)", "1 (done before)", anew, "2 (0 s)", anew, "3 (0 s)", "4 (0 s)"]


def test_an_interrupted_step_finds_what_it_left_but_not_what_other_inputs_left(tmp_path):
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


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="no steps of an earlier call"):
        Steps(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_two_calls_do_not_work_in_the_same_folder(tmp_path):
    expected = "work: another call works in it; wait for its end, stop it, or choose"
    with (
        Steps(tmp_path / "work").alone(),
        pytest.raises(InvalidInput, match=expected),
        Steps(tmp_path / "work").alone(),
    ):
        pass
    with Steps(tmp_path / "work").alone():
        pass
