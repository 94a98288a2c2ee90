"""How strange what lies in an image is to the detector."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.datasets.render import render
from sticker_uq.datasets.scenes import sample_scene
from sticker_uq.detection.features import Features
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.localization.strangeness import packaged_head
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.unfamiliar import StrangePlaces
from sticker_uq.scene import InvalidInput
from test.helpers.assessments import observed

SSDLITE = "ssdlite320_mobilenet_v3_large"


def places(resized: tuple[int, int] = (320, 320)) -> StrangePlaces:
    """640 x 480 px, seen as 4 x 4 cells of which the one at the top left is strange."""
    cells = np.zeros((4, 4), np.float32)
    cells[0, 0] = 0.8
    return StrangePlaces(cells, Features((640, 480), resized, (320, 320), ()), 0.2)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((10, 10, 20, 20), 0.8),
        ((0, 0, 160, 120), 0.8),
        ((0, 0, 320, 120), 0.4),
        ((0, 0, 640, 480), 0.05),
        ((-50, -50, -10, -10), 0.8),
        ((600, 400, 900, 900), 0.0),
    ],
)
def test_an_object_is_as_strange_as_the_cells_that_its_box_touches(
    box: tuple[float, ...], expected: float
) -> None:
    assert places().at(np.array(box, np.float32)) == pytest.approx(expected)


def test_padding_of_the_input_is_no_part_of_the_image() -> None:
    # the image fills the left half of the input: a cell is twice as wide
    assert places(resized=(320, 160)).at(np.array([0, 0, 320, 120], np.float32)) == pytest.approx(0.8)


def test_nothing_is_measured_without_a_head() -> None:
    nowhere = StrangePlaces(None, Features((640, 480), (320, 320), (320, 320), ()))
    assert math.isnan(nowhere.scene)
    (one,) = nowhere.on([observed()])
    assert math.isnan(one.strangeness)
    (one,) = places().on([replace(observed(), box=np.array([0, 0, 160, 120], np.float32))])
    assert one.strangeness == pytest.approx(0.8)


def test_the_packaged_detector_finds_a_thing_on_the_lid_strange() -> None:
    perception = Perception(PerceptionSettings(model=SSDLITE, passes=3, device="cpu", threads=1))
    picture = render(sample_scene(3)).image
    covered = picture.copy()
    covered[200:420, 300:560] = (
        np.random.default_rng(0).integers(0, 255, (11, 13, 3)).repeat(20, 0).repeat(20, 1)
    )
    calm, odd = perception.assess(picture), perception.assess(covered)
    assert calm.localization is not None
    assert odd.localization is not None
    assert calm.localization.strangeness < odd.localization.strangeness
    assert all(0.0 <= o.strangeness <= 1.0 for o in (*odd.objects, *odd.unstable))


def test_a_head_beside_ones_own_weights_is_used_and_part_of_the_settings(tmp_path: Path) -> None:
    weights = tmp_path / "mine.safetensors"
    shutil.copy(packaged_weights(SSDLITE), weights)
    settings = PerceptionSettings(model=SSDLITE, weights=str(weights), passes=3, device="cpu", threads=1)
    alone = Perception(settings)
    assert alone.settings_hash == settings.hash
    head = packaged_head(SSDLITE)
    assert head is not None
    shutil.copy(head, tmp_path / "mine_strangeness.safetensors")
    taught = Perception(settings)
    assert taught.settings_hash != settings.hash
    image = render(sample_scene(3)).image
    assert [bool(s.localization and s.localization.strangeness >= 0.0) for s in (alone.assess(image), taught.assess(image))] == [
        False, True,
    ]  # fmt: skip
    (tmp_path / "mine_strangeness.safetensors").write_bytes(weights.read_bytes())
    with pytest.raises(InvalidInput, match="no strangeness head"):
        Perception(settings)
