# SPDX-License-Identifier: Apache-2.0
"""What the lab knows of a detector by its family, and of one of another package."""

import pytest

from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.attacks.targets import attack_view
from sticker_uq_lab.training.recipes import Recipe, recipe_of
from test.detection.test_registry import FCOS, fcos  # noqa: F401


def test_every_built_in_detector_has_a_recipe():
    assert all(recipe_of(name).learning_rate > 0 for name in MODEL_NAMES)


@pytest.mark.usefixtures("fcos")
def test_a_registered_detector_has_the_plain_recipe_and_no_attack():
    assert recipe_of(FCOS) == Recipe()
    with pytest.raises(InvalidInput, match="its family is 'fcos', expected one of faster_rcnn"):
        attack_view(FCOS)
