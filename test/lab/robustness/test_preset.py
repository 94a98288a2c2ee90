# SPDX-License-Identifier: Apache-2.0
"""The laptop cell's specification is complete, and its file explains itself."""

from pathlib import Path

from typer.testing import CliRunner

from sticker_uq.cli import robustness as cli
from sticker_uq.lab.corruptions import TRANSFORMATIONS
from sticker_uq.lab.robustness.followups import check_transformations
from sticker_uq.lab.robustness.spec import Specification, laptop_cell
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
