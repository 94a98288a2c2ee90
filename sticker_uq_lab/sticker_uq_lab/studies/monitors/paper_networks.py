# SPDX-License-Identifier: Apache-2.0
"""The four kinds of classifier that Weiss et al. 2022 (section VI-A) supervise, by name; all but the first need larger crops."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import densenet121, resnet50

from sticker_uq.perception.monitors.crop_network import CropClassifier, CropNetwork

CONVOLUTIONAL = "convolutional"


class StagedClassifier(CropNetwork):
    """Stages, then hidden layers."""

    def __init__(
        self, stages: Iterable[nn.Module], features: int, hidden: Sequence[int], classes: int
    ) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.hidden = nn.ModuleList(
            nn.Linear(before, width) for before, width in pairwise((features, *hidden))
        )
        self.last = nn.Linear(hidden[-1], classes)

    def activations(self, crops: Tensor, dropout: bool) -> tuple[Tensor, ...]:
        maps, at = [], crops
        for stage in self.stages:
            at = stage(at)
            maps.append(at)
        at = F.adaptive_avg_pool2d(at, 1).flatten(1)
        for layer in self.hidden:
            at = F.relu(layer(F.dropout(at, 0.25, dropout)))
        return (*maps, at)


class _Colour(nn.Module):
    def forward(self, crops: Tensor) -> Tensor:
        return crops.expand(-1, 3, -1, -1)


def _dense(shape: tuple[int, int, int], classes: int) -> StagedClassifier:
    channels, height, width = shape
    sizes = (channels * height * width, 256, 128)
    layers = [nn.Sequential(nn.Conv2d(before, after, 1), nn.ReLU()) for before, after in pairwise(sizes)]
    flat = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (sizes[0], 1, 1)))  # pixels as channels of one cell
    first = nn.Sequential(flat, *layers[0])
    return StagedClassifier([first, *layers[1:]], sizes[-1], (64,), classes)


def _resnet(shape: tuple[int, int, int], classes: int) -> StagedClassifier:
    net = resnet50(weights=None)
    stem = nn.Sequential(_Colour(), net.conv1, net.bn1, net.relu, net.maxpool)
    stages = [nn.Sequential(stem, net.layer1), net.layer2, net.layer3, net.layer4]
    return StagedClassifier(stages, 2048, (256, 64), classes)


def _densenet(shape: tuple[int, int, int], classes: int) -> StagedClassifier:
    """DenseNet-121, without pretrained weights, and without the stride and the pooling of its stem: crops are small."""
    net = densenet121(weights=None).features
    blocks = dict(net.named_children())
    stem = nn.Sequential(nn.Conv2d(shape[0], 64, 3, padding=1, bias=False), blocks["norm0"], blocks["relu0"])
    stages = [nn.Sequential(stem, blocks["denseblock1"])]
    stages += [
        nn.Sequential(blocks[f"transition{number}"], blocks[f"denseblock{number + 1}"])
        for number in (1, 2, 3)
    ]
    stages[-1].append(nn.Sequential(blocks["norm5"], nn.ReLU()))
    return StagedClassifier(stages, 1024, (64,), classes)


Build = Callable[[tuple[int, int, int], int], CropNetwork]
ARCHITECTURES: dict[str, Build] = {
    CONVOLUTIONAL: CropClassifier,
    "dense": _dense,
    "resnet50": _resnet,
    "densenet": _densenet,
}
"""What builds a network for crops of a shape (C, h, w) and a number of classes."""


def builder(architecture: str, deep: bool) -> Build:
    """What builds the network ``architecture``; ``deep`` is the convolutional one's (:class:`CropClassifier`)."""
    known = ARCHITECTURES[architecture]
    return partial(CropClassifier, deep=deep) if known is CropClassifier else known
