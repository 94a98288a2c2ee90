# SPDX-License-Identifier: Apache-2.0
"""From class probabilities and boxes of a detector's candidates to the boxes that are kept, with their full distributions.

torchvision's post-processing returns one score per box; the uncertainty metrics need the whole class vector.
Here a candidate (anchor or proposal) yields at most one box, that of its most probable foreground class,
where torchvision yields one for every class above the threshold; and boxes without an area are dropped for
every family. Threshold, clipping and suppression per class are otherwise torchvision's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.models.detection._utils import BoxCoder
from torchvision.ops import nms

from sticker_uq.detection.transfer import to_host


def decode_deltas(coder: Any, deltas: Tensor, anchors: Tensor) -> Tensor:
    """Boxes (N, 4) as torchvision's ``coder`` makes them of ``deltas`` (N, 4) to ``anchors`` (N, 4), bit for bit.

    The ``decode_single`` of torchvision's ``BoxCoder`` copies the number 0.5 to a GPU twice in every call, and waits for it. Any
    other coder, such as that of FCOS, decodes itself.
    """
    if not isinstance(coder, BoxCoder):
        boxes: Tensor = coder.decode(deltas, anchors)
        return boxes
    anchors = anchors.to(deltas.dtype)
    low, high = [], []
    for axis in (0, 1):
        sizes = anchors[:, 2 + axis] - anchors[:, axis]
        centres = anchors[:, axis] + 0.5 * sizes
        middle = deltas[:, axis] / coder.weights[axis] * sizes + centres
        growth = (deltas[:, 2 + axis] / coder.weights[2 + axis]).clamp(max=coder.bbox_xform_clip)
        half = 0.5 * (torch.exp(growth) * sizes)
        low.append(middle - half)
        high.append(middle + half)
    return torch.stack([*low, *high], dim=1)


CANDIDATES = 1000
"""Most probable candidates of a pass that take part in suppression, as in torchvision's RetinaNet and Faster R-CNN."""
_SMALLEST_SIDE = 1e-2  # px of the resized image; torchvision's limit in Faster R-CNN


class NonFiniteOutput(RuntimeError):
    """The network produced NaN or infinity. Such an image has no detections to trust, not even an empty list."""


@dataclass(frozen=True)
class Rows:
    """Boxes of a group of passes, ordered by pass and then by falling score.

    ``boxes`` (N, 4) px; ``probabilities`` (N, 3), rows sum to 1; ``pass_index`` (N,) within the group. On a device there may be
    weaker rows than asked for, or of zeros alone, and ``finite`` tells, as a tensor () that was not waited for, whether what the
    network produced is.
    """

    boxes: Tensor
    probabilities: Tensor
    pass_index: Tensor
    finite: Tensor | None = None

    def __getitem__(self, index: Tensor) -> Rows:
        return Rows(self.boxes[index], self.probabilities[index], self.pass_index[index], self.finite)

    def above(self, score_floor: float) -> Rows:
        """The rows above ``score_floor``. Waits for a device. Raises NonFiniteOutput as :func:`check_finite` does."""
        if self.finite is not None:
            _require(self.finite)
        return self[self.probabilities[:, 1:].amax(dim=1) > score_floor]

    def on_processor(self, score_floor: float) -> Rows:
        """The rows above ``score_floor`` in the processor's memory, by one transfer: the only wait of a group of passes.

        Raises NonFiniteOutput as :func:`check_finite` does. Rows that lie there are above it already.
        """
        if self.boxes.device.type == "cpu":
            return self
        flags = () if self.finite is None else (self.finite,)
        boxes, vectors, passes, *finite = to_host(self.boxes, self.probabilities, self.pass_index, *flags)
        return Rows(boxes, vectors, passes.to(torch.int64), *finite).above(score_floor)


def all_finite(*tensors: Tensor) -> Tensor:
    """Whether ``tensors`` hold no NaN or infinity, as a tensor () bool on their device, without waiting for it.

    On a processor, which need not wait, NonFiniteOutput is raised at once as by :func:`check_finite`.
    """
    # NaN and infinity survive in the extremes, which are much cheaper than a mask of the elements
    extremes = [extreme for t in tensors if t.numel() for extreme in torch.aminmax(t.detach())]
    if not extremes or extremes[0].device.type == "cpu":
        finite = torch.tensor(all(map(math.isfinite, map(float, extremes))))
        _require(finite)
        return finite
    return torch.stack([torch.isfinite(extreme) for extreme in extremes]).all()


def check_finite(*tensors: Tensor) -> None:
    """Raise NonFiniteOutput if ``tensors`` hold NaN or infinity. Waits for a device."""
    _require(all_finite(*tensors))


def _require(finite: Tensor) -> None:
    if not bool(finite):
        raise NonFiniteOutput("the detector produced values that are not finite")


def softmax_distribution(logits: Tensor) -> Tensor:
    """Class distribution (..., 3) of a softmax head's logits (..., 3), background first."""
    # over the first dimension it is twenty times as fast as over a last one of three
    return torch.softmax(logits.to(torch.float32).movedim(-1, 0).contiguous(), dim=0).movedim(0, -1)


def sigmoid_distribution(logits: Tensor) -> Tensor:
    """Class distribution (..., 3) of a head with one independent sigmoid per class (..., 3).

    RetinaNet never learns its first, background column, so it is left out: with p_c the sigmoids of the foreground classes, the
    background has the probability that none is present, prod(1 - p_c), and the vector is normalised.
    """
    foreground = torch.sigmoid(logits[..., 1:].to(torch.float32))
    background = (1 - foreground).prod(dim=-1, keepdim=True)
    vector = torch.cat([background, foreground], dim=-1)
    return vector / vector.sum(dim=-1, keepdim=True)


def strongest(probabilities: Tensor, score_floor: float) -> tuple[Tensor, Tensor]:
    """Pass and candidate indices (N,), (N,) of the candidates of ``probabilities`` (n, A, 3) above ``score_floor``.

    At most CANDIDATES of a pass, ordered by pass, then by falling score, then by candidate. On a device always so many, weaker
    ones too: how many are above the floor would have to be waited for.
    """
    scores = probabilities[..., 1:].amax(dim=-1)
    if scores.device.type != "cpu":
        best = top_ranked(scores, min(CANDIDATES, scores.shape[1]))
        numbers = torch.arange(len(scores), device=scores.device)
        return numbers[:, None].expand_as(best).flatten(), best.flatten()
    passes, candidates = (scores > score_floor).nonzero(as_tuple=True)
    # stable, since dropout on logits makes exact ties
    order = scores[passes, candidates].argsort(descending=True, stable=True)
    if len(scores) == 1:
        order = order[:CANDIDATES]
    else:
        order = order[passes[order].argsort(stable=True)]
        order = order[_rank(passes) < CANDIDATES]
    return passes[order], candidates[order]


def top_ranked(scores: Tensor, count: int) -> Tensor:
    """Indices (n, count) of the largest of ``scores`` (n, N), falling, equal ones by index.

    ``topk`` may take any of several equal scores, others for another number of rows. Scores must not be NaN.
    """
    # the bits of a float, as a whole number, rise with it; those of a negative one fall
    bits = (scores.to(torch.float32) + 0.0).view(torch.int32)
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    falling_index = torch.arange(scores.shape[1] - 1, -1, -1, device=scores.device)
    return ((rising.to(torch.int64) << 32) | falling_index).topk(count, dim=1).indices


def keep_best(rows: Rows, size: tuple[int, int], nms_threshold: float, max_detections: int) -> Rows:
    """``rows`` clipped to the image of ``size`` (height, width), without empty boxes, suppressed per pass and class.

    They lie in the processor's memory. At most ``max_detections`` of a pass remain. The order stays.
    """
    boxes, probabilities, passes = (t.numpy() for t in (rows.boxes, rows.probabilities, rows.pass_index))
    height, width = size
    boxes = np.minimum(np.maximum(boxes, 0), np.array([width, height, width, height], boxes.dtype))
    smallest = (boxes[:, 2:] - boxes[:, :2]).min(axis=1, initial=np.inf)
    scores, labels = probabilities[:, 1:].max(axis=1), probabilities[:, 1:].argmax(axis=1)
    groups = np.where(smallest >= np.float32(_SMALLEST_SIDE), passes * probabilities.shape[1] + labels, -1)
    # one call per pass and class: shifting the groups apart, as batched_nms does, would round the boxes of later
    # passes more than those of earlier ones
    order = np.argsort(groups, kind="stable")
    numbers, sizes = np.unique(groups, return_counts=True)
    sorted_by_group = (order, boxes[order], scores[order])
    columns = (torch.from_numpy(values).split(sizes.tolist()) for values in sorted_by_group)
    kept = [torch.empty(0, dtype=torch.int64)]
    for number, members, of_boxes, of_scores in zip(numbers, *columns, strict=True):
        if number >= 0:
            kept.append(members[nms(of_boxes, of_scores, nms_threshold)])
    places = torch.cat(kept).sort().values.numpy()
    places = places[np.arange(len(places)) - np.searchsorted(passes[places], passes[places]) < max_detections]
    return Rows(*(torch.from_numpy(values[places]) for values in (boxes, probabilities, passes)))


def _rank(passes: Tensor) -> Tensor:
    """Position (N,) of every row within its pass; ``passes`` (N,) is sorted."""
    return torch.arange(len(passes), device=passes.device) - torch.searchsorted(passes, passes)
