# SPDX-License-Identifier: Apache-2.0
"""Several images assessed together on a simulated GPU: each is what it is alone, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sticker_uq.dil import saliency
from sticker_uq.perception import Perception, PerceptionSettings, Shot
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput, Status
from test.helpers.models import picture
from test.helpers.simulated_gpu import simulated_gpu

SHOTS = [Shot(np.roll(picture(), 11 * n, axis=1), n, f"camera {n}") for n in range(5)]
SETTINGS = PerceptionSettings(passes=3, device="cuda", images_at_once=4)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(saliency, "objectness_gradients", lambda d: [torch.ones_like(m) for m in d.maps])
    with simulated_gpu():
        yield


@pytest.mark.parametrize("values", [{}, {"dil": False}, {"dil_every": 2}, {"novelty": False}])
def test_a_scene_is_the_same_alone_and_beside_others(values: dict[str, object]) -> None:
    perception = Perception(SETTINGS.model_copy(update=values))
    alone = [
        perception.assess(shot.image, shot.stamp_ns, shot.frame_id, keep_saliency=True) for shot in SHOTS
    ]
    together = perception.assess_together(SHOTS, keep_saliency=True)
    assert [scene.digest for scene in together] == [scene.digest for scene in alone]
    assert [(scene.stamp_ns, scene.frame_id) for scene in together] == [s[1:3] for s in SHOTS]
    assert len({scene.image_digest for scene in together}) == len(SHOTS)
    backwards = perception.assess_together(SHOTS[::-1])
    assert [scene.digest for scene in backwards[::-1]] == [scene.digest for scene in alone]
    for one, other in zip(together, alone, strict=True):
        if "dil_every" not in values:  # the time of the others' localization is shared by all
            assert one.timings.keys() == other.timings.keys()
        if one.localization is not None:
            assert one.localization.saliency is not None
            assert other.localization is not None
            np.testing.assert_array_equal(one.localization.saliency, other.localization.saliency)
    if "dil_every" in values:
        assert 0 < sum(scene.localization is not None for scene in together) < len(SHOTS)


def test_it_is_nearly_what_a_processor_says_of_each() -> None:
    plain = Perception(SETTINGS.model_copy(update={"device": "cpu"}))
    assert plain.images_at_once == 1
    for found, wanted in zip(
        Perception(SETTINGS).assess_together(SHOTS), plain.assess_together(SHOTS), strict=True
    ):
        assert found.status == wanted.status
        assert [o.label for o in found.objects] == [o.label for o in wanted.objects]
        for one, other in zip(found.objects, wanted.objects, strict=True):
            np.testing.assert_allclose(one.box, other.box, atol=0.5)


def test_values_that_are_not_finite_fail_their_image_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    perception = Perception(SETTINGS)
    wanted = perception.assess_together(SHOTS)
    broken = SHOTS[2].image.tobytes()
    encode = perception.detector.encode_together

    def encoded(images):  # type: ignore[no-untyped-def]
        return [
            replace(own, maps=tuple(m * float("nan") for m in own.maps)) if image.tobytes() == broken else own
            for own, image in zip(encode(images), images, strict=True)
        ]

    monkeypatch.setattr(perception.detector, "encode_together", encoded)
    found = perception.assess_together(SHOTS)
    assert [scene.status is Status.FAILED for scene in found] == [n == 2 for n in range(len(SHOTS))]
    assert "not finite" in found[2].status_text
    for n in (0, 1, 3, 4):
        assert found[n].digest == wanted[n].digest
    assert perception.images_at_once == 4
    assert perception.shortage == ""


@pytest.mark.parametrize(
    ("stage", "most", "left"), [("encode", 1, 1), ("encode", 2, 2), ("sample", 1, 1), ("sample", 3, 2)]
)
def test_too_little_memory_halves_the_images_for_good(
    stage: str, most: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    perception = Perception(SETTINGS)
    detector = perception.detector
    fewer = Perception(SETTINGS.model_copy(update={"images_at_once": left})).assess_together(SHOTS)
    computed, sizes = {"encode": detector._engine.encode, "sample": detector._pass_rows}[stage], []

    def limited(one, other):  # type: ignore[no-untyped-def]
        images = len(one.tensors) if stage == "encode" else len(one.maps[0])
        sizes.append(images)
        if images > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return computed(one, other)

    owner, name = (detector._engine, "encode") if stage == "encode" else (detector, "_pass_rows")
    monkeypatch.setattr(owner, name, limited)
    found = perception.assess_together(SHOTS)
    assert perception.images_at_once == left
    assert set(sizes) == {4, 2, left}
    assert perception.shortage == (
        f"the memory of cuda:0 Simulated suffices for {left} image{'s'[: left - 1]} at once, not for 4"
    ).replace("cuda:0 Simulated", str(detector.device))
    assert [scene.status for scene in found] == [scene.status for scene in fewer]
    assert [len(scene.objects) for scene in found] == [len(scene.objects) for scene in fewer]
    assert [replace(one, settings_hash="").digest for one in found] == [
        replace(one, settings_hash="").digest for one in fewer
    ]


def test_an_image_that_fits_in_no_memory_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    perception = Perception(SETTINGS)

    def never(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(perception.detector, "_pass_rows", never)
    for scene in perception.assess_together(SHOTS[:3]):
        assert scene.status is Status.FAILED
        assert "images_at_once" in scene.status_text
    assert (perception.images_at_once, perception.detector.chunk) == (1, 1)


def test_sizes_are_not_mixed() -> None:
    with pytest.raises(InvalidInput, match="all of one size"):
        Perception(SETTINGS).assess_together([SHOTS[0], Shot(picture(width=200))])


def test_a_policy_knows_how_many_images_a_gpu_computes_together_and_no_processor_does() -> None:
    one = SETTINGS.model_copy(update={"images_at_once": 1})
    assert SETTINGS.hash_on("cpu") == one.hash_on("cpu")
    assert SETTINGS.hash_on("cuda") != one.hash_on("cuda")


def test_a_cascade_computes_one_image_after_the_other(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="images_at_once is 4, expected 1 with escalate_to"):
        load_perception(SETTINGS.model_copy(update={"escalate_to": str(tmp_path / "larger.yaml")}))
