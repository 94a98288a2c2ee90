# SPDX-License-Identifier: Apache-2.0
"""Stages of a detector as CUDA graphs: the same kernels as without, started by one call instead of some hundred.

No GPU has run them yet: tests replay them on a simulated one, which refuses what a capture refuses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.dropout import CounterDropout, Dropout, no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.devices import device_broken
from sticker_uq.detection.models.family import Family
from sticker_uq.detection.selection import Rows

Tensors = tuple[Tensor, ...]
MOST_GRAPHS = 16
"""Captured graphs of a detector: each keeps the memory of its stage. Of further shapes stages are computed the plain way."""
_WARM_UP = 2
"""Times that a stage is computed before its capture, in which libraries choose algorithms and take their memory."""


@dataclass(frozen=True)
class _Captured:
    graph: Any
    inputs: Tensors
    outputs: Tensors


class Graphs:
    """The captured stages of one detector, by name and shapes. All share one pool of memory.

    ``problems``: why a stage is computed the plain way, by its name.
    """

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self._captured: dict[Hashable, _Captured] = {}
        self._pool: Any = None

    def __len__(self) -> int:
        return len(self._captured)

    def run(
        self, stage: str, compute: Callable[..., Tensors], inputs: Sequence[Tensor], other: Hashable = ()
    ) -> Tensors:
        """``compute(*inputs)``, by a graph of the same shapes.

        What ``compute`` makes must depend on the values of ``inputs`` alone, and its shapes on theirs and on ``other``. It must
        not wait for the GPU: then, or where memory is short, the stage stays plain, with a warning and an entry of ``problems``.
        """
        if stage in self.problems:
            return compute(*inputs)
        key = (stage, other, *((t.shape, t.dtype, t.stride()) for t in inputs))
        captured = self._captured.get(key)
        if captured is None:
            captured = self._capture(stage, compute, inputs)
            if captured is None:
                return compute(*inputs)
            self._captured[key] = captured
        for held, given in zip(captured.inputs, inputs, strict=True):
            held.copy_(given)
        captured.graph.replay()
        # the next replay writes the same memory
        return tuple(output.clone() for output in captured.outputs)

    def _capture(
        self, stage: str, compute: Callable[..., Tensors], inputs: Sequence[Tensor]
    ) -> _Captured | None:
        if len(self._captured) >= MOST_GRAPHS:
            self._refuse(stage, f"more than {MOST_GRAPHS} shapes of images and groups of passes")
            return None
        held = tuple(given.clone() for given in inputs)
        try:
            for _ in range(_WARM_UP):
                compute(*held)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                outputs = compute(*held)
        except RuntimeError as error:
            if device_broken(error):
                raise
            self._refuse(stage, str(error).strip().split("\n", 1)[0])
            return None
        self._pool = graph.pool()
        return _Captured(graph, held, outputs)

    def _refuse(self, stage: str, why: str) -> None:
        self.problems[stage] = why
        warnings.warn(f"no CUDA graph of {stage}, which is computed without: {why}", stacklevel=2)


class GraphedStages:
    """What :class:`Graphs` computes of a detector: all before the first dropout, and the passes up to the choice of boxes.

    ``exact``: what computes without dropout.
    """

    def __init__(self, engine: Family, exact: Family) -> None:
        self.graphs = Graphs()
        self._engine, self._exact = engine, exact
        self._calls: dict[Hashable, int] = {}
        self._levels: dict[Hashable, int] = {}

    def encode(self, images: ImageList, image_size: tuple[int, int]) -> Features:
        """As ``Family.encode``."""
        resized, padded = tuple(images.image_sizes[0]), tuple(images.tensors.shape[-2:])

        def compute(pixels: Tensor) -> Tensors:
            features = self._engine.encode(ImageList(pixels, images.image_sizes), image_size)
            self._levels[padded] = len(features.maps)
            return *features.maps, *features.extra

        made = self.graphs.run("encode", compute, [images.tensors])
        levels = self._levels[padded]
        return Features(image_size, resized, padded, made[:levels], made[levels:])

    def pass_rows(self, features: Features, dropout: CounterDropout, score_floor: float) -> Rows:
        """The candidates of ``Family.candidates`` for the passes of ``dropout``."""
        tensors = (*features.maps, *features.extra)
        shapes = (features.resized, *(t.shape for t in tensors))
        if (
            shapes not in self._calls
        ):  # as often as the masks of such an image are drawn, keys have to be there
            rows = self._rows(features, dropout, score_floor)
            self._calls[shapes] = dropout.calls
            return rows

        def candidates(held: Features, keys: Tensor) -> Rows:
            return self._rows(held, dropout.with_keys(keys), score_floor)

        keys = dropout.keys(range(self._calls[shapes]))
        return self._run_rows("passes", candidates, features, (keys,), score_floor)

    def plain_rows(self, features: Features, score_floor: float) -> Rows:
        """The candidates of ``Family.head_outputs`` for ``features`` in single precision, without dropout and gradients."""

        def candidates(held: Features) -> Rows:
            return self._exact.head_outputs(held, self._exact.head_maps(held, no_dropout), score_floor).rows

        return self._run_rows("detect", candidates, features, (), score_floor)

    def _run_rows(
        self,
        stage: str,
        candidates: Callable[..., Rows],
        features: Features,
        further: Tensors,
        score_floor: float,
    ) -> Rows:
        """``candidates(features, *further)`` by a graph of ``stage``."""
        levels, extra = len(features.maps), len(features.maps) + len(features.extra)
        anchors: dict[str, Any] = {}

        def compute(*given: Tensor) -> Tensors:
            held = replace(features, maps=given[:levels], extra=given[levels:extra], _derived=dict(anchors))
            rows = candidates(held, *given[extra:])
            # anchors come from the processor, and are the same for all images of a size: not again in the capture
            anchors.update((name, made) for name, made in held._derived.items() if name == "anchors")
            finite = rows.boxes.new_ones(()) if rows.finite is None else rows.finite
            return rows.boxes, rows.probabilities, rows.pass_index, finite

        inputs = [*features.maps, *features.extra, *further]
        return Rows(*self.graphs.run(stage, compute, inputs, (features.resized, score_floor)))

    def _rows(self, features: Features, dropout: Dropout, score_floor: float) -> Rows:
        maps = self._engine.head_maps(features, dropout)
        return self._engine.candidates(features, maps, dropout, score_floor)
