# SPDX-License-Identifier: Apache-2.0
"""What can be known before any labelled image is assessed."""

import shutil
from pathlib import Path

import pytest

from sticker_uq.calibration.making import assess_sources
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput


def test_a_missing_novelty_network_is_told_before_any_image_is_assessed(tmp_path: Path) -> None:
    packaged = packaged_weights(PerceptionSettings().model)
    assert packaged is not None
    shutil.copy(packaged, tmp_path / "mine.safetensors")
    alone = PerceptionSettings(weights=str(tmp_path / "mine.safetensors"), device="cpu")
    cache = tmp_path / "cache.sqlite"
    with pytest.raises(
        InvalidInput,
        match=r"no file mine_novelty\.safetensors beside the weights.*unmeasured_novelty: release",
    ):
        assess_sources([], alone, cache, need_novelty=True)
    assert not cache.exists()
    assert assess_sources([], alone, cache) == [], "a policy that releases without novelty needs no network"
    assert assess_sources([], PerceptionSettings(device="cpu"), cache, need_novelty=True) == []
