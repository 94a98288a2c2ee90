# SPDX-License-Identifier: Apache-2.0
"""A user's own pictures in rendered scenes: where they are, that nothing else changes, and what is refused."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import read_coco, read_picture
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.rendering import render, sample_scene
from sticker_uq_lab.rendering.designs import Designs, read_designs, with_designs
from sticker_uq_lab.rendering.scene_sampling import Profile

STICKER_HUE, LOGO_HUE, PHOTOGRAPH_HUE = 150, 30, 60  # magenta, yellow and green, of OpenCV's 180


def _picture(file: Path, hue: int, width: int, height: int) -> None:
    """A plain colour with a transparent rim."""
    file.parent.mkdir(parents=True, exist_ok=True)
    colours = np.full((height, width, 3), (hue, 255, 230), np.uint8)
    image = cv2.cvtColor(cv2.cvtColor(colours, cv2.COLOR_HSV2BGR), cv2.COLOR_BGR2BGRA)
    image[:3], image[-3:], image[:, :3], image[:, -3:] = 0, 0, 0, 0
    assert cv2.imwrite(str(file), image)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("designs")
    _picture(made / "stickers" / "tag.png", STICKER_HUE, 90, 60)
    _picture(made / "logos" / "mark.png", LOGO_HUE, 50, 80)
    _picture(made / "photographs" / "room.png", PHOTOGRAPH_HUE, 320, 200)
    return made


@pytest.fixture(scope="module")
def designs(folder: Path) -> Designs:
    return read_designs(folder)


@given(st.integers(0, 10**9), st.sampled_from(["large", "study"]))
def test_what_shows_a_design_is_where_it_was_with_the_shape_of_its_file(
    designs: Designs, seed: int, profile: Profile
) -> None:
    before = sample_scene(seed, profile=profile)
    after = with_designs(before, designs)
    assert with_designs(before, designs) == after
    for old, new in zip(before.stickers, after.stickers, strict=True):
        assert (new.id, new.centre, new.angle) == (old.id, old.centre, old.angle)
        assert new.width * new.height == pytest.approx(old.width * old.height)
        assert new == old or (new.shape, new.motif) == ("design", designs.stickers[0])
        assert new == old or new.width / new.height == pytest.approx(84 / 54)
    for mark, was in zip(after.logos, before.logos, strict=True):
        assert mark.id == was.id
        assert mark.width <= was.width + 1e-6
        assert mark.height <= was.height + 1e-6
        assert mark == was or mark.design == designs.logos[0]


def test_rendered_designs_are_labelled_as_what_they_are(folder: Path, tmp_path: Path) -> None:
    asked = [
        "dataset",
        "render",
        "--profile",
        "large",
        "--count",
        "6",
        "--seed",
        "190600000",
        "--size",
        "480x360",
    ]
    done = CliRunner().invoke(app, [*asked, "--designs", str(folder), "--out", str(tmp_path / "own")])
    assert done.exit_code == 0, done.output
    shown = {ObjectClass.STICKER: 0, ObjectClass.LOGO: 0}
    tables = 0
    for item in read_coco(tmp_path / "own"):
        hue, saturation, value = cv2.split(cv2.cvtColor(read_picture(item), cv2.COLOR_BGR2HSV))
        vivid = (saturation > 130) & (value > 60)
        for box, label in zip(item.boxes.round().astype(int), item.labels, strict=True):
            place = np.s_[box[1] : box[3], box[0] : box[2]]
            wanted = STICKER_HUE if label == ObjectClass.STICKER else LOGO_HUE
            shown[ObjectClass(label)] += (vivid & (abs(hue.astype(int) - wanted) < 12))[place].mean() > 0.4
        tables += (vivid & (abs(hue.astype(int) - PHOTOGRAPH_HUE) < 12)).mean() > 0.2
    assert shown[ObjectClass.STICKER] >= 4
    assert shown[ObjectClass.LOGO] >= 1
    assert 1 <= tables < 6


def test_the_screen_of_an_opened_laptop_shows_a_photograph(designs: Designs) -> None:
    scenes = (sample_scene(seed, profile="study") for seed in range(190_600_000, 190_600_100))
    opened = next(
        s for s in (with_designs(s, designs) for s in scenes if s.laptop.view == "flat") if s.laptop.screen
    )
    image = render(
        replace(opened, things=(), background=replace(opened.background, photograph="")), (480, 402)
    ).image
    hue, saturation, _ = cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2HSV))
    assert ((saturation > 130) & (abs(hue.astype(int) - PHOTOGRAPH_HUE) < 12)).mean() > 0.05


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("", b"", r"expected PNG or JPEG files in stickers/, logos/, photographs/, or in some"),
        ("stickers/a.svg", b"<svg/>", r"a\.svg: compressed image starts with .* expected a JPEG or PNG"),
        (
            "logos/a.png",
            cv2.imencode(".png", np.zeros((9, 9, 4), np.uint8))[1].tobytes(),
            "transparent everywhere",
        ),
        (
            "logos/a.png",
            cv2.imencode(".png", np.ones((9, 9, 3), np.uint16))[1].tobytes(),
            "colours of 8 bits",
        ),
        (
            "stickers/a.png",
            cv2.imencode(".png", np.zeros((9, 9, 3), np.uint8))[1].tobytes()[:-20],
            "truncated",
        ),
    ],
)
def test_designs_that_cannot_be_shown_are_refused_before_anything_is_written(
    name: str, content: bytes, problem: str, tmp_path: Path
) -> None:
    if name:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=problem):
        read_designs(tmp_path)
    done = CliRunner().invoke(
        app, ["dataset", "render", "--out", str(tmp_path / "out"), "--designs", str(tmp_path)]
    )
    assert done.exit_code != 0
    assert not (tmp_path / "out").exists()
