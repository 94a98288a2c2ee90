# SPDX-License-Identifier: Apache-2.0
"""An SSDLite on the MobileNetV2 of the photo network, so that a training can start with its filters."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import mobilenet_v2
from torchvision.models.detection._utils import retrieve_out_channels
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD
from torchvision.models.detection.ssdlite import SSDLiteFeatureExtractorMobileNet, SSDLiteHead

MAP_16 = 14
"""The block whose expansion is the map of 16 px per place."""
_SIZE = (320, 320)
_NORM = partial(nn.BatchNorm2d, eps=1e-3)


class _Same(nn.Conv2d):
    """Pads as TensorFlow does for a kernel of 3 and a stride of 2."""

    def forward(self, input: Tensor) -> Tensor:
        height, width = input.shape[-2:]
        return super().forward(F.pad(input, (width % 2, 1, height % 2, 1)))


def photo_blocks() -> Any:
    """The blocks of a MobileNetV2 as TensorFlow computes it, for pictures from -1 to 1, with random weights."""
    blocks = mobilenet_v2(weights=None, norm_layer=_NORM).features
    for layer in blocks.modules():
        if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2):
            layer.__class__, layer.padding = _Same, (0, 0)
    return blocks


def mobilenet_v2_ssdlite(*, min_size: int, num_classes: int) -> nn.Module:
    """As torchvision's ssdlite320_mobilenet_v3_large: maps of 16 and 32 px per place, four coarser ones, and its default boxes.

    ``min_size`` is without effect: the input has a fixed size.
    """
    blocks = photo_blocks()
    blocks[MAP_16].block = blocks[MAP_16].conv  # as it is called in a MobileNetV3
    backbone = SSDLiteFeatureExtractorMobileNet(blocks, MAP_16, _NORM)
    generator = DefaultBoxGenerator([[2, 3]] * 6, min_ratio=0.2, max_ratio=0.95)
    channels, boxes = retrieve_out_channels(backbone, _SIZE), generator.num_anchors_per_location()
    head = SSDLiteHead(channels, boxes, num_classes, _NORM)
    half = [0.5] * 3
    return SSD(backbone, generator, _SIZE, num_classes, image_mean=half, image_std=half, head=head)


def fill_backbone(model: Any, blocks: nn.Module) -> None:
    """Give the backbone of ``model``, of :func:`mobilenet_v2_ssdlite`, the weights of ``blocks``; all else stays random."""
    own = model.backbone.features  # the same layers in the same order, one block divided in two
    own.load_state_dict(dict(zip(own.state_dict(), blocks.state_dict().values(), strict=True)))
