# SPDX-License-Identifier: Apache-2.0
"""Saliency methods of pytorch-grad-cam, on the activations and gradients that a pass of the detector left."""

import numpy as np
import torch
from torch import Tensor, nn

from sticker_uq.perception.dil.settings import Technique
from sticker_uq.scene import InvalidInput

METHODS: dict[Technique, str] = {
    "layercam": "LayerCAM",
    "gradcam": "GradCAM",
    "gradcam++": "GradCAMPlusPlus",
    "eigencam": "EigenCAM",
}
"""The class of pytorch-grad-cam of each technique."""
_MOST_CELLS = 8192
"""Of one level for Eigen-CAM, of which the library decomposes a matrix of all cells by all cells."""


def library_map(activations: Tensor, gradients: Tensor, technique: Technique) -> Tensor:
    """Class activation maps of one level, (n, h, w) >= 0, from its activations and gradients (n, C, h, w).

    Not scaled from 0 to 1, as the library does with the maps that it makes from pixels.
    """
    import pytorch_grad_cam  # takes a second to load; the live path does without

    cells = activations.shape[2] * activations.shape[3]
    if technique == "eigencam" and cells > _MOST_CELLS:
        raise InvalidInput(
            f"eigencam: a feature map has {cells} cells, expected at most {_MOST_CELLS}: choose a smaller min_size"
        )
    seen, slopes = (tensor.detach().cpu().numpy() for tensor in (activations, gradients))
    with getattr(pytorch_grad_cam, METHODS[technique])(
        nn.Linear(1, 1), []
    ) as method:  # no network: it has run
        found = method.get_cam_image(None, None, None, seen, slopes, False)
    if technique == "eigencam":  # a principal component has no sign: the strongest response is positive
        strongest = np.take_along_axis(
            found.reshape(len(found), -1),
            np.abs(found).reshape(len(found), -1).argmax(axis=1)[:, None],
            axis=1,
        )
        found = found * np.where(strongest < 0, -1, 1)[:, :, None]
    return torch.from_numpy(np.maximum(found, 0)).to(activations)
