# SPDX-License-Identifier: Apache-2.0
"""The laptop cell's specification is complete, and a person can answer its questions and see its pictures."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from sticker_uq.cli import robustness as cli
from sticker_uq.lab.corruptions import TRANSFORMATIONS
from sticker_uq.lab.robustness.drawing import check_transformations
from sticker_uq.lab.robustness.preset import laptop_cell
from sticker_uq.lab.robustness.questions import SCALES, ask_all, questions
from sticker_uq.lab.robustness.sheet import write_sheet
from sticker_uq.lab.robustness.source_set import SourceSet
from sticker_uq.lab.robustness.spec import Specification
from sticker_uq.scene import InvalidInput
from test.lab.robustness.published import mds_specification


def test_the_laptop_cell_uses_every_transformation_once() -> None:
    spec = laptop_cell()
    assert sorted(str(c.transformation) for c in spec.circumstances) == sorted(TRANSFORMATIONS)
    check_transformations(spec)
    assert all({"operator", "developer"} == set(c.views) for c in spec.circumstances)
    assert len({c.significance for c in spec.circumstances}) > 5


def test_the_file_explains_itself_and_comes_back(tmp_path: Path) -> None:
    spec = laptop_cell()
    spec.save(tmp_path / "spec.yaml", {"": "heading\n\nmore", "glare": "strength in percent"})
    text = (tmp_path / "spec.yaml").read_text()
    assert text.startswith("# heading\n#\n# more\n")
    assert "  # strength in percent\n- name: glare\n" in text
    assert Specification.load(tmp_path / "spec.yaml") == spec


def test_every_question_names_the_scale_of_the_paper() -> None:
    asked = questions(laptop_cell().circumstance("occlusion"))
    assert [q.factor for q in asked] == ["exposure", "likelihood", "severity"]
    assert "3 Marginal: " in asked[2].text
    assert "hand is in the way" in asked[0].text
    assert [q.default for q in asked] == [5, 3, 4]
    assert [[name for name, _ in s.values] for s in SCALES] == [
        ["Rare", "Unusual", "Occasional", "Frequent", "Continuous"],
        ["Rare", "Unlikely", "Possible", "Likely", "Certain"],
        ["Insignificant", "Minor", "Marginal", "Critical", "Catastrophic"],
    ]


def test_answers_become_the_specification() -> None:
    said = []
    spec = ask_all(laptop_cell(), lambda q: 4 if q.factor == "severity" else 2, said.append)
    assert {c.significance for c in spec.circumstances} == {16}
    assert [c.name for c in said] == [c.name for c in laptop_cell().circumstances]
    with pytest.raises(ValidationError):
        ask_all(laptop_cell(), lambda q: 6)


def test_the_sheet_shows_three_strengths_of_everything(source: SourceSet, tmp_path: Path) -> None:
    spec = laptop_cell()
    few = spec.model_copy(update={"circumstances": spec.circumstances[:2]})
    assert write_sheet(few, source, tmp_path / "sheet.html", 1) == 2
    html = (tmp_path / "sheet.html").read_text()
    assert html.count("data:image/jpeg;base64,") == 1 + 2 * 3
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    distances = [float(d) for d in re.findall(r"d = (\d+\.\d+)", html)]
    assert len(distances) == 6
    assert all(d > 0 for d in distances)
    whole = few.model_copy(update={"circumstances": spec.circumstances[1:2], "distance": "fid"})
    write_sheet(whole, source, tmp_path / "sheet.html", 1)
    assert "fid is a distance between sets" in (tmp_path / "sheet.html").read_text()
    with pytest.raises(InvalidInput, match="image 9: expected 0 to 3"):
        write_sheet(few, source, tmp_path / "sheet.html", 9)


def test_init_writes_a_file_that_explains_its_strengths(tmp_path: Path) -> None:
    out = tmp_path / "cell.yaml"
    answer = CliRunner().invoke(cli.app, ["init", str(out)])
    assert answer.exit_code == 0, answer.output
    assert Specification.load(out) == laptop_cell()
    text = out.read_text()
    assert "5 Catastrophic: many laptops" in text
    assert "  # strength in px: diameter of the blur circle; 0 to 150; swept: 2, 4, 7, 11, 18, 30" in text
    again = CliRunner().invoke(cli.app, ["init", str(out)])
    assert isinstance(again.exception, InvalidInput)
    assert "exists already" in str(again.exception)
    published = CliRunner().invoke(cli.app, ["init", str(out), "--start", "medical-diagnosis", "--force"])
    assert published.exit_code == 0, published.output
    assert Specification.load(out) == mds_specification()


def test_init_asks_and_takes_no_impossible_answer(tmp_path: Path) -> None:
    start, out = tmp_path / "two.yaml", tmp_path / "asked.yaml"
    spec = laptop_cell()
    spec.model_copy(update={"circumstances": spec.circumstances[:2]}).save(start)
    said = "5\n9\n4\n\n1\n1\n2\n"  # 9 is refused, an empty line keeps what is there
    answer = CliRunner().invoke(cli.app, ["init", str(out), "--ask", "--start", str(start)], input=said)
    assert answer.exit_code == 0, answer.output
    assert [c.significance for c in Specification.load(out).circumstances] == [5 * 4 * 3, 2]
    assert "-> significance 60 of 125" in answer.output
    stopped = CliRunner().invoke(
        cli.app, ["init", str(tmp_path / "none.yaml"), "--ask", "--start", str(start)], input="5\n"
    )
    assert stopped.exit_code != 0
    assert not (tmp_path / "none.yaml").exists()


def test_the_sheet_is_a_command(source: SourceSet, tmp_path: Path) -> None:
    spec = laptop_cell()
    spec.model_copy(update={"circumstances": spec.circumstances[12:13]}).save(tmp_path / "one.yaml")
    arguments = ["sheet", str(tmp_path / "one.yaml"), "--data", str(source.folder)]
    answer = CliRunner().invoke(cli.app, [*arguments, "--out", str(tmp_path / "sheet.html")])
    assert answer.exit_code == 0, answer.output
    assert "<h2>rotation</h2>" in (tmp_path / "sheet.html").read_text()
