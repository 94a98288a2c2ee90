# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs on a simulated GPU: what was captured runs again without the code that made it, and CUDA's refusals are made."""

import warnings

import numpy as np
import pytest
import torch

from sticker_uq.detection import load_detector
from sticker_uq.detection.kernels import graphs
from sticker_uq.detection.kernels.graphs import Graphs
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.novelty.network import novelty_maps, packaged_network
from sticker_uq.scene import StochasticSamples
from test.detection.test_devices import brought_there, nothing_left  # noqa: F401  # fixture
from test.helpers.models import picture
from test.helpers.simulated_gpu import GPU, simulated_gpu

pytestmark = pytest.mark.usefixtures("one_thread")
SSDLITE, SSD, RETINANET = "ssdlite320_mobilenet_v3_large", "ssd300_vgg16", "retinanet_resnet50_fpn"
TWO_STAGE = "fasterrcnn_resnet50_fpn"
IMAGES = [picture(), np.ascontiguousarray(picture()[::-1, ::-1])]


def same(one: StochasticSamples, other: StochasticSamples) -> bool:
    pairs = ((one.boxes, other.boxes), (one.probabilities, other.probabilities))
    return all(np.array_equal(a, b) for a, b in (*pairs, (one.pass_index, other.pass_index)))


@pytest.mark.parametrize("name", [SSDLITE, SSD, RETINANET])
def test_graphs_compute_the_same_bytes_of_every_image_and_seed(name):
    with simulated_gpu():
        plain = brought_there(name)
        settings = plain.settings.model_copy(update={"graphs": True})
        graphed = plain.with_settings(settings)
        features = [plain.encode(image) for image in IMAGES]
        wanted = {
            (image, seed): plain.sample(features[image], 2, seed) for image, seed in ((0, 1), (0, 2), (1, 2))
        }
        assert not same(wanted[0, 1], wanted[0, 2])
        assert not same(wanted[0, 2], wanted[1, 2])
        graphed.sample(graphed.encode(IMAGES[0]), 2, 7)  # shows how often masks are drawn
        for (number, seed), samples in wanted.items():
            assert same(graphed.sample(graphed.encode(IMAGES[number]), 2, seed), samples)
        assert graphed.graph_problems == {}
        assert len(graphed._graphed.graphs) == 2
        # the features of an image are its own, whatever is encoded after it
        first = graphed.encode(IMAGES[0])
        graphed.detect_in(IMAGES[1])
        assert same(graphed.sample(first, 2, 1), wanted[0, 1])


@pytest.mark.parametrize("name", [SSDLITE, SSD, RETINANET])
def test_a_pass_without_dropout_is_a_graph_where_nobody_asks_for_gradients(name):
    with simulated_gpu():
        plain = brought_there(name)
        graphed = plain.with_settings(plain.settings.model_copy(update={"graphs": True}))
        wanted = [plain.detect_in(image) for image in IMAGES]
        assert not np.array_equal(wanted[0].boxes, wanted[1].boxes)
        for number in (0, 1, 0):
            found = graphed.detect_in(IMAGES[number])
            assert np.array_equal(found.boxes, wanted[number].boxes)
            assert np.array_equal(found.probabilities, wanted[number].probabilities)
        assert graphed.graph_problems == {}
        assert len(graphed._graphed.graphs) == 2


def test_novelty_by_a_graph_is_the_same():
    with simulated_gpu():
        plain = brought_there(SSDLITE)
        graphed = plain.with_settings(plain.settings.model_copy(update={"graphs": True}))
        network = packaged_network(load_detector(DetectorSettings(device="cpu"))).to(GPU)
        wanted = [novelty_maps(network, image) for image in IMAGES]
        assert wanted[0].distance != wanted[1].distance
        for number in (0, 1, 0):
            found = novelty_maps(network, IMAGES[number], graphed.run_stage)
            assert found.distance == wanted[number].distance
            assert np.array_equal(found.foreign, wanted[number].foreign)
        assert graphed.graph_problems == {}
        assert len(graphed._graphed.graphs) == 1


def test_a_stage_that_waits_is_computed_without_and_said_once():
    with simulated_gpu():
        plain = brought_there(TWO_STAGE)
        graphed = plain.with_settings(plain.settings.model_copy(update={"graphs": True}))
        wanted = plain.sample(plain.encode(IMAGES[0]), 2, 1)
        assert same(graphed.sample(graphed.encode(IMAGES[0]), 2, 1), wanted)
        with pytest.warns(UserWarning, match="no CUDA graph of passes"):
            assert same(graphed.sample(graphed.encode(IMAGES[0]), 2, 1), wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert same(graphed.sample(graphed.encode(IMAGES[0]), 2, 1), wanted)
        assert list(graphed.graph_problems) == ["passes"]


def test_a_value_of_the_processor_in_a_stage_is_refused():
    """As is whatever would be captured once and never be true again."""
    numbers = [1.0, 2.0]

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x + torch.tensor(numbers[:1]).to(GPU, non_blocking=True),)

    with simulated_gpu():
        run, zero = Graphs(), torch.zeros(1, device=GPU)
        with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
            assert run.run("stage", compute, [zero])[0].held == 1.0
        numbers.pop(0)
        assert run.run("stage", compute, [zero])[0].held == 2.0


def test_of_too_many_shapes_the_later_ones_are_computed_without(monkeypatch):
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 2)
    with simulated_gpu(), warnings.catch_warnings():
        warnings.simplefilter("error")
        run = Graphs()
        for size in (1, 2, 1, 2):
            assert (
                run.run("double", lambda x: (2 * x,), [torch.ones(size, device=GPU)])[0].held.sum()
                == 2 * size
            )
        with pytest.raises(UserWarning, match="more than 2 shapes"):
            run.run("double", lambda x: (2 * x,), [torch.ones(3, device=GPU)])
        assert run.run("double", lambda x: (2 * x,), [torch.ones(3, device=GPU)])[0].held.sum() == 6
        assert len(run) == 2


def test_graphs_are_no_part_of_what_a_policy_was_made_for():
    with_, without = (PerceptionSettings(graphs=graphs).hash_on("cuda") for graphs in (True, False))
    assert with_ == without
    assert DetectorSettings().graphs is False
