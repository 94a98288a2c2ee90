# SPDX-License-Identifier: Apache-2.0
"""What can be known before any labelled image is assessed; what processes or a cluster share is what one process says."""

import shutil

import pytest

from sticker_uq.calibration.making import assess_sources
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput
from test.helpers.laptops import data_set


def test_a_missing_novelty_network_is_told_before_any_image_is_assessed(tmp_path):
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


SETTINGS = PerceptionSettings(passes=2, device="cpu")


@pytest.fixture
def source(tmp_path):
    return LabelledSource(data_set(tmp_path / "data", 2))


def assessed(source, cache, jobs, ray_address=""):
    """What is known of ``source``, and of how many images it was counted."""
    counted = []
    (found,) = assess_sources([source], SETTINGS, cache, lambda: counted.append(1), jobs, ray_address)
    known = [(record.name, record.assessment.digest) for record in found.records]
    return known, found.fingerprint, len(counted)


def test_two_processes_assess_as_one(source, tmp_path):
    alone = assessed(source, tmp_path / "one.sqlite", 1)
    assert alone[2] == 2
    assert assessed(source, tmp_path / "two.sqlite", 2) == alone
    assert assessed(source, tmp_path / "two.sqlite", 1) == alone, "and from the cache"


def test_a_cluster_is_asked_for_before_any_work(source, tmp_path):
    pytest.importorskip("ray", reason="Ray is an optional dependency: pip install ray")
    with pytest.raises(InvalidInput, match=r"127\.0\.0\.1:1: expected the address of a Ray cluster"):
        assessed(source, tmp_path / "ray.sqlite", 1, "127.0.0.1:1")
