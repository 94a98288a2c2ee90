# SPDX-License-Identifier: Apache-2.0
"""The way of an image through a GPU, on one that is simulated: nothing is left on the wrong side, and the result is the same."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.detection.deterministic_pass import DeterministicPass
from sticker_uq.detection.kernels.fast_faster_rcnn import BatchedFasterRcnn, FastFasterRcnn
from sticker_uq.detection.kernels.frozen import freeze
from sticker_uq.detection.selection import NonFiniteOutput
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.dil import LocalizationSettings, localize
from sticker_uq.perception.dil import dil as saliency
from sticker_uq.perception.dil.dil import sum_objectness
from sticker_uq.scene import InvalidInput
from test.detection.test_devices import brought_there, nothing_left  # noqa: F401  # fixture
from test.helpers.models import MIN_SIZE, picture, tiny_detector, tiny_model, tiny_weights
from test.helpers.simulated_gpu import GPU, simulated_gpu

pytestmark = pytest.mark.usefixtures("one_thread")

SSDLITE, TWO_STAGE = "ssdlite320_mobilenet_v3_large", "fasterrcnn_resnet50_fpn"
# the tests of one model follow each other, for which it is brought to the GPU once
each_kind = pytest.mark.parametrize("name", [SSDLITE, TWO_STAGE], scope="module")


@contextmanager
def on_gpu(name: str, **values: Any) -> Iterator[StochasticDetector]:
    """``tiny_detector(name)`` on the simulated GPU, which exists inside the block."""
    with simulated_gpu():
        detector = brought_there(name)
        yield detector.with_settings(DetectorSettings(**detector.settings.model_dump() | values))


def ones(deterministic: DeterministicPass) -> list[torch.Tensor]:
    """In place of gradients to the maps: torch's engine has a thread for each GPU and asks its driver for one."""
    sum_objectness(deterministic.objectness, deterministic.two_stage)
    return [torch.ones_like(m) for m in deterministic.maps]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a perception that loads small weights."""
    weights = tiny_weights(SSDLITE, tmp_path_factory.mktemp("weights"))
    return {"model": SSDLITE, "weights": str(weights), "passes": 2, "device": "cuda"}


def test_half_precision_runs_there_and_only_there():
    with pytest.raises(InvalidInput, match="float16 needs a GPU"):
        tiny_detector(SSDLITE, precision="float16")
    with on_gpu(SSDLITE, precision="float16") as detector:
        features = detector.encode(picture())
        assert {m.dtype for m in features.maps} == {torch.float16}
        samples = detector.sample(features, 2, seed=7)
    assert len(samples) > 0
    assert samples.boxes.dtype == samples.probabilities.dtype == np.float32


@pytest.mark.parametrize(
    ("precision", "kind", "inside"),
    [("tf32", "tf32", True), ("tf32", "tf32", False), ("bfloat16", "ieee", True)],
)
def test_a_precision_is_what_is_computed_in_every_stage_and_in_them_alone(
    precision, kind, inside, small, monkeypatch
):
    def differentiated(deterministic: DeterministicPass) -> list[torch.Tensor]:
        assert deterministic.tf32 is (kind == "tf32")
        return ones(deterministic)

    monkeypatch.setattr(saliency, "objectness_gradients", differentiated)
    with simulated_gpu() as simulation:
        perception = Perception(PerceptionSettings.model_validate(small | {"precision": precision}))
        assert simulation.products == set()
        if inside:
            scene = perception.assess(picture())
            assert (scene.device, scene.precision) == ("cuda:0 Simulated, engine 3", precision)
        else:
            detector = perception.detector
            features = detector.encode(picture())
            detector.sample(features, 2, seed=1)
            detector.detect(features)
            detector.deterministic_pass(features)
        assert simulation.products == {(kind, kind)}
        torch.ones(2, 2, device=GPU) @ torch.ones(2, 2, device=GPU)
        assert simulation.products == {(kind, kind), ("tf32", "none")}, "torch's own default again"


def test_tf32_needs_a_gpu_that_has_it(monkeypatch):
    settings = DetectorSettings(model=SSDLITE, device="cpu", precision="tf32")
    with pytest.raises(InvalidInput, match="precision tf32 needs a GPU"):
        tiny_detector(SSDLITE).with_settings(settings.model_copy(update={"min_size": MIN_SIZE}))
    with on_gpu(SSDLITE) as detector:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        with pytest.raises(InvalidInput, match="cuda:0 Simulated has no tf32"):
            detector.with_settings(detector.settings.model_copy(update={"precision": "tf32"}))


def test_masks_of_two_detectors_are_drawn_without_a_race():
    """What one stream writes the other must not read unless it waited: the simulation refuses it."""
    with simulated_gpu() as simulation:
        plain = brought_there(SSDLITE)
        other = StochasticDetector(copy.deepcopy(tiny_model(SSDLITE)), plain.settings, "")
        for size, detector in ((12, plain), (8, other), (16, other), (14, plain)):
            map_ = torch.empty(1, 5, size, size)
            wanted = tiny_detector(SSDLITE).dropout(3, range(2)).masks(map_)
            with detector.on_device():
                masks = detector.dropout(3, range(2)).masks(map_.to(GPU))
            assert torch.equal(masks.held, wanted)
        with plain.on_device():
            written = torch.ones(3, device=GPU)
        with pytest.raises(RuntimeError, match="another stream may not have written"):
            written + 1
        simulation.current().wait_stream(plain._stream)
        assert torch.equal((written + 1).cpu(), torch.full((3,), 2.0))


@pytest.mark.parametrize("name", [SSDLITE, TWO_STAGE])
def test_a_whole_assessment_is_the_same(name, monkeypatch):
    monkeypatch.setattr(saliency, "objectness_gradients", ones)
    settings = PerceptionSettings(model=name, min_size=MIN_SIZE, passes=4)
    plain = Perception(settings, tiny_detector(name, passes=4)).assess(picture(), keep_saliency=True)
    with on_gpu(name, passes=4) as detector:
        scene = Perception(settings.model_copy(update={"device": "cuda"}), detector).assess(
            picture(), keep_saliency=True
        )
    assert (scene.status, scene.status_text) == (plain.status, plain.status_text)
    assert scene.objects
    assert [o.label for o in scene.objects] == [o.label for o in plain.objects]
    assert scene.localization.dil == pytest.approx(plain.localization.dil, abs=1e-3)
    assert scene.localization.saliency is not None
    places, wanted = scene.localization.unexplained, plain.localization.unexplained
    assert len(places) == len(wanted)
    for place, other in zip(places, wanted, strict=True):
        np.testing.assert_allclose(place.box, other.box, atol=1.0)
        assert place.objectness == pytest.approx(other.objectness, abs=1e-2)


def test_the_packaged_weights_and_their_novelty(small_packaged, monkeypatch):
    monkeypatch.setattr(saliency, "objectness_gradients", ones)
    settings = PerceptionSettings(model=SSDLITE, passes=2)
    plain = Perception(settings.model_copy(update={"device": "cpu"})).assess(picture())
    with simulated_gpu():
        scene = Perception(settings.model_copy(update={"device": "cuda"})).assess(picture())
    assert scene.status == plain.status
    assert scene.scene_distance == pytest.approx(plain.scene_distance, abs=1e-3)


@each_kind
def test_a_gpu_is_waited_for_as_often_for_two_passes_as_for_four(name, monkeypatch):
    monkeypatch.setattr(saliency, "objectness_gradients", ones)
    # once for all boxes of all passes; with two stages before that once for the proposals
    wanted = 2 if name.startswith("fasterrcnn") else 1
    with simulated_gpu() as simulation:
        detector = brought_there(name)
        detector = detector.with_settings(detector.settings.model_copy(update={"passes": 4}))
        features = detector.encode(picture())
        detector.sample(features, 1, seed=1)  # shapes of anchors are brought there once
        features = detector.encode(picture())
        waits: list[int] = []
        looks: list[DeterministicPass] = []
        for work in (
            lambda: detector.encode(picture()),
            lambda: detector.sample(features, 2, seed=1),
            lambda: detector.sample(features, 4, seed=1),
            lambda: looks.append(detector.deterministic_pass(features)),
            lambda: localize(looks[0], LocalizationSettings()),
            lambda: detector.detect_in(picture()),
        ):
            simulation.waits.clear()
            work()
            waits.append(simulation.waits.total())
    assert waits == [0, wanted, wanted, wanted, 1, wanted]


@each_kind
def test_what_is_not_finite_is_found_though_nobody_waits_for_it(name):
    with on_gpu(name) as detector:
        features = detector.encode(picture())
        maps = tuple(m * (float("nan") if level == 0 else 1.0) for level, m in enumerate(features.maps))
        broken = replace(features, maps=maps, _derived={})
        with pytest.raises(NonFiniteOutput):
            detector.sample(broken, 2, seed=7)
        with pytest.raises(NonFiniteOutput):
            detector.deterministic_pass(broken)


def test_proposals_of_all_passes_at_once_are_those_of_each():
    """On the same outputs of the network they are the same bits, also where a level or all of them have few."""
    detector = tiny_detector(TWO_STAGE)
    features = detector.encode(picture())
    model = freeze(detector.model)
    one_by_one, at_once = (kind(model, detector.settings) for kind in (FastFasterRcnn, BatchedFasterRcnn))
    maps = one_by_one.head_maps(features, detector.dropout(3, range(3)))
    objectness, deltas = model.rpn.head(maps)
    for bias, size in ((0.0, 1e-3), (-200.0, 1e-3), (0.0, 40.0), (0.0, 1e4)):
        model.rpn.min_size = size
        logits = [o + bias for o in objectness]
        wanted = one_by_one._propose(features, maps, logits, deltas)
        boxes, used = at_once._proposals(features, maps, logits, deltas)
        assert [int(u.sum()) for u in used] == [len(w) for w in wanted]
        for found, which, proposals in zip(boxes, used, wanted, strict=True):
            assert torch.equal(found[which], proposals)
    assert not used.any()
    assert len(at_once._rows(features, maps, logits, deltas, 0.01).boxes) == 0


def test_the_simulation_is_as_strict_as_a_gpu():
    with simulated_gpu():
        there, here = torch.ones(2, 3, device=GPU), torch.ones(2, 3)
        assert torch.equal((there * 2.0 + torch.tensor(1.0)).cpu(), here * 3)
        with pytest.raises(RuntimeError, match="same device"):
            there + here
        with pytest.raises(RuntimeError, match="same device"):
            F.linear(there, torch.ones(1, 3))
        with pytest.raises(RuntimeError, match="numpy"):
            there.numpy()
        image, weight = torch.ones(1, 1, 4, 4, device=GPU), torch.ones(1, 1, 3, 3, device=GPU)
        with pytest.raises(NotImplementedError, match="mkldnn"):
            torch.mkldnn_convolution(image, weight, None, (1, 1), (1, 1), (1, 1), 1)
