# SPDX-License-Identifier: Apache-2.0
"""A panel on the disk and at work: limits, files that belong together, scores of every object."""

import math
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from sticker_uq.calibration import panel
from sticker_uq.calibration.panel import Labelled, fit_panel, joint_limits
from sticker_uq.perception import Perception
from sticker_uq.perception.monitors.folder import PanelFile, load_panel
from sticker_uq.perception.monitors.task_network import TaskNetwork
from sticker_uq.scene import InvalidInput
from test.helpers.models import picture, tiny_detector
from test.helpers.panels import MODEL, NAMES, OPEN, labelled, settings

scores = hnp.arrays(np.float64, (3, 40), elements=st.floats(allow_nan=True, allow_infinity=True, width=32))


@given(scores, st.floats(0.01, 0.5))
def test_the_whole_panel_refuses_no_more_than_it_may(values, alarms):
    limits = joint_limits({str(n): row for n, row in enumerate(values)}, alarms)
    usable = np.isfinite(values).all(axis=0)  # the others are objected to whatever the limit
    refused = np.any([~(row <= limits[str(n)]) for n, row in enumerate(values)], axis=0)
    assert refused[(np.isnan(values) | np.isposinf(values)).any(axis=0)].all()
    assert refused[usable].sum() <= max(alarms * 40, 0)


def test_limits_use_what_they_may():
    one = np.arange(100.0)
    assert joint_limits({"a": one}, 0.05) == {"a": 94.0}
    # refusing the same objects costs a second monitor nothing, others share the allowance
    assert joint_limits({"a": one, "b": 2 * one}, 0.05) == {"a": 94.0, "b": 188.0}
    assert joint_limits({"a": one, "b": one[::-1]}, 0.05) == {"a": 97.0, "b": 97.0}
    assert joint_limits({"a": one}, 0.001) == {"a": 99.0}


@pytest.fixture(autouse=True, scope="module")
def short_trainings() -> Iterator[None]:
    """What a task network learns is test_task_networks' subject."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panel, "TaskNetwork", partial(TaskNetwork, epochs=2))
        yield


Material = tuple[Perception, list[Labelled]]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("material")
    perception = Perception(settings(folder))
    return perception, labelled(folder, perception)


@pytest.fixture(scope="module")
def fitted(material: Material) -> tuple[PanelFile, Path]:
    perception, pictures = material
    weights = Path(perception.settings.weights)
    return fit_panel(perception, pictures, pictures, NAMES, weights.parent / "panel", OPEN, task=0.5), weights


def test_what_the_file_says(fitted):
    document, weights = fitted
    assert tuple(document.monitors) == (*NAMES, "task")
    assert document.model_hash == tiny_detector(MODEL).weights_hash
    assert document.calibration.stickers >= 20
    assert document.calibration.refused <= 0.05 * document.calibration.stickers
    assert all(seat.cost_ms > 0 for seat in document.monitors.values())
    assert PanelFile.model_validate_json((weights.parent / "panel" / "panel.json").read_text()) == document


def test_every_object_of_a_scene_is_scored_the_same_every_time(fitted):
    document, weights = fitted
    folder = weights.parent
    chosen = settings(folder, panel=str(folder / "panel"))
    scene = Perception(chosen).assess(picture(1))
    again = Perception(chosen).assess(picture(1))
    assert scene.objects
    for one in scene.objects:
        assert [s.name for s in one.monitors] == list(document.monitors)
        assert [s.limit for s in one.monitors] == [s.limit for s in document.monitors.values()]
        assert all(s.objection == (not s.score <= s.limit) for s in one.monitors)
    assert scene.to_bytes() == again.to_bytes()
    assert scene.timings["panel"] > 0
    plain = Perception(settings(folder)).assess(picture(1))
    assert plain.settings_hash == scene.settings_hash  # the panel has a hash of its own
    assert (plain.panel_hash, [o.monitors for o in plain.objects]) == ("", [()] * len(plain.objects))
    assert [o.box.tolist() for o in plain.objects] == [o.box.tolist() for o in scene.objects]
    assert all(math.isfinite(one.monitors[-1].score) for one in scene.objects), "the task network's"
    some = Perception(settings(folder, panel=str(folder / "panel"), monitors="mdsa, pcs")).assess(picture(1))
    assert [s.name for s in some.objects[0].monitors] == ["mdsa", "pcs"]
    assert some.panel_hash != scene.panel_hash


def test_a_panel_of_another_detector_is_refused(fitted):
    folder = fitted[1].parent / "panel"
    other = tiny_detector(MODEL, passes=7)
    with pytest.raises(InvalidInput, match=r"fitted with passes = 5, not 7.*monitors fit"):
        load_panel(folder, (), other)
    with pytest.raises(InvalidInput, match=f"fitted for {MODEL} with the weights .* not for retinanet"):
        load_panel(folder, (), tiny_detector("retinanet_resnet50_fpn", passes=5))
    with pytest.raises(InvalidInput, match=r"'lsa' was not fitted, expected some of pcs, mdsa"):
        load_panel(folder, ("lsa",), tiny_detector(MODEL, passes=5))
    with pytest.raises(InvalidInput, match="expected the folder that they are in"):
        Perception(settings(fitted[1].parent, monitors="pcs"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("panel.json", "expected a folder made by `sticker-uq monitors fit`"),
        ("mdsa.json", "names it"),
        ("mdsa.safetensors", "no such file"),
        ("probe.safetensors", "names it"),
    ],
)
def test_a_panel_that_is_not_whole_is_refused(fitted, tmp_path, name, words):
    folder = tmp_path / "panel"
    shutil.copytree(fitted[1].parent / "panel", folder)
    detector = tiny_detector(MODEL, passes=5)
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    with pytest.raises(InvalidInput, match=words):
        load_panel(folder, (), detector)
    (folder / name).write_bytes(content[:-1] + b" ")
    with pytest.raises(InvalidInput, match=r"checksum|no description of a panel"):
        load_panel(folder, (), detector)


def test_too_little_to_go_by(material, tmp_path):
    perception, pictures = material
    with pytest.raises(InvalidInput, match="ensemble_mean_softmax needs an ensemble"):
        fit_panel(perception, pictures, pictures, ["ensemble_mean_softmax"], tmp_path / "panel", OPEN)
    with pytest.raises(InvalidInput, match=r"stickers on 1 pictures would rightly be removed, expected 20"):
        fit_panel(perception, pictures, pictures[1:2], ["pcs"], tmp_path / "panel", OPEN)
    with pytest.raises(InvalidInput, match="--alarms 1"):
        fit_panel(perception, pictures, pictures, ["pcs"], tmp_path / "panel", OPEN, alarms=1)
    with pytest.raises(InvalidInput, match="one side of it"):
        fit_panel(perception, pictures, pictures, ["pcs"], tmp_path / "panel", OPEN, task=0.95)
    assert not (tmp_path / "panel").exists()
