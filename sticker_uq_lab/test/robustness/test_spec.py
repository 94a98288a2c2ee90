# SPDX-License-Identifier: Apache-2.0
"""The specification says what is wrong with it, and epsilon is the function that was written down."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from lab_helpers.published import mds_specification, paper_relation
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.cli import robustness as cli
from sticker_uq_lab.corruptions import TRANSFORMATIONS
from sticker_uq_lab.robustness.followups import check_transformations
from sticker_uq_lab.robustness.spec import (
    Circumstance,
    Relation,
    Specification,
    continuous_relation,
    laptop_cell,
    preset_file,
)


def circumstance(name: str = "glare", **changes: Any) -> dict[str, Any]:
    values = {
        "name": name,
        "views": {"operator": "the lamp mirrors in the lid"},
        "transformation": "glare",
        "strength": [1, 4],
        "probability": 0.1,
        "exposure": 3,
        "likelihood": 2,
        "severity": 5,
    }
    return values | changes


def specification(*circumstances: dict[str, Any], **changes: Any) -> Specification:
    values = {"system": {"name": "cell"}, "circumstances": circumstances or (circumstance(),)}
    return Specification.model_validate(values | changes)


def test_significance_is_the_product_of_the_published_example():
    # Box 2 of the paper: slow shutter of the road monitoring system
    slow_shutter = circumstance("slow-shutter", exposure=1, likelihood=2, severity=5)
    assert Circumstance.model_validate(slow_shutter).significance == 10


@pytest.mark.parametrize(("distance", "allowed"), [(0.0, 0.01), (0.154, 0.01), (0.25, 0.01), (0.3, 0.3)])
def test_paper_relation(distance, allowed):
    assert paper_relation().epsilon(distance) == pytest.approx(allowed)


@given(st.floats(0, 3), st.floats(0, 1e-3))
def test_continuous_relation_has_no_jump(distance, step):
    relation = continuous_relation()
    change = relation.epsilon(distance + step) - relation.epsilon(distance)
    assert -1e-12 <= change <= step + 1e-12


def test_points_are_joined_and_the_last_is_held():
    relation = Relation(points=((0, 0.02), (0.2, 0.02), (0.6, 0.22)))
    assert [relation.epsilon(d) for d in (0, 0.1, 0.4, 0.6, 5)] == pytest.approx(
        [0.02, 0.02, 0.12, 0.22, 0.22]
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either points or pieces"),
        ({"points": [(0.1, 0.2)]}, "distance 0"),
        ({"points": [(0, 0.1), (0, 0.2)]}, "increase"),
        ({"points": [(0, -0.1)]}, "negative"),
        ({"pieces": [{"up_to": 0.2}]}, "last piece must have no up_to"),
        ({"pieces": [{"up_to": 0.2, "intercept": 0.1}, {"slope": 1}]}, "jumps from 0.1 to 0.2 at d = 0.2"),
        ({"pieces": [{"slope": -1, "intercept": 2}]}, "must not fall"),
        ({"pieces": [{}, {}]}, "every piece but the last"),
    ],
)
def test_no_function_is_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        Relation.model_validate(values)


def test_significance_tightens_epsilon_linearly():
    spec = specification(significance_tightening=0.5)
    assert spec.epsilon("ap", 0.1, 1) == pytest.approx(0.02)
    assert spec.epsilon("ap", 0.1, 63) == pytest.approx(0.015)
    assert spec.epsilon("ap", 0.1, 125) == pytest.approx(0.01)
    with pytest.raises(InvalidInput, match="speed"):
        spec.epsilon("speed", 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"severity": 6}, "glare.severity = 6: expected at most 5"),
        ({"relative_frequency": 0.1}, "glare: glare: give either probability or relative_frequency"),
        ({"strength": None}, "transformation and strength belong together"),
        ({"views": {}}, "glare.views"),
        ({"colour": "red"}, "glare.colour = 'red'"),
    ],
)
def test_a_wrong_circumstance_is_named(tmp_path, changes, message):
    import yaml

    values = {"system": {"name": "cell"}, "circumstances": [circumstance(**changes)]}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(InvalidInput) as caught:
        Specification.load(tmp_path / "spec.yaml")
    assert message in str(caught.value)
    assert "spec.yaml" in str(caught.value)


def test_an_exclusive_group_cannot_exceed_certainty():
    with pytest.raises(ValidationError, match=r"'light': its frequencies sum to 1\.2"):
        specification(
            circumstance("dark", probability=0.6, exclusive_group="light"),
            circumstance("bright", probability=0.6, exclusive_group="light"),
        )


@pytest.mark.parametrize(
    "content", ["", "[1, 2]", "a: [", "system: {name: x}\ncircumstances: 3", "\x00", "circumstances: [7]"]
)
def test_a_broken_file_is_bad_input(tmp_path, content):
    (tmp_path / "spec.yaml").write_text(content)
    with pytest.raises(InvalidInput, match=r"spec\.yaml"):
        Specification.load(tmp_path / "spec.yaml")
    with pytest.raises(InvalidInput, match="missing"):
        Specification.load(tmp_path / "missing.yaml")


def test_the_laptop_cell_uses_every_transformation_once():
    spec = laptop_cell()
    assert sorted(str(c.transformation) for c in spec.circumstances) == sorted(TRANSFORMATIONS)
    check_transformations(spec)
    assert all({"operator", "developer"} == set(c.views) for c in spec.circumstances)
    text = preset_file("laptop-cell").read_text()
    for c in spec.circumstances:
        known = TRANSFORMATIONS[str(c.transformation)]
        limits = f"{known.limits[0]:g} to {known.limits[1]:g}"
        assert f"# strength in {known.unit}: {known.strength}; {limits}\n- name: {c.name}\n" in text
    assert len({c.significance for c in spec.circumstances}) > 5


def test_init_writes_a_file_that_explains_its_strengths(tmp_path):
    out = tmp_path / "cell.yaml"
    answer = CliRunner().invoke(cli.app, ["init", str(out)])
    assert answer.exit_code == 0, answer.output
    assert Specification.load(out) == laptop_cell()
    assert "5 Catastrophic: many laptops" in out.read_text()
    again = CliRunner().invoke(cli.app, ["init", str(out)])
    assert isinstance(again.exception, InvalidInput)
    assert "exists already" in str(again.exception)
    published = CliRunner().invoke(cli.app, ["init", str(out), "--start", "medical-diagnosis", "--force"])
    assert published.exit_code == 0, published.output
    assert Specification.load(out) == mds_specification()
