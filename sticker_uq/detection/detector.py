# SPDX-License-Identifier: Apache-2.0
"""The stochastic sticker detector: one deterministic pass over the image, then as many dropout passes as asked."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.deterministic_pass import DeterministicPass, leaves
from sticker_uq.detection.dropout import CounterDropout, Dropout, PassDropout, no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.devices import float32_products, keep_freed_memory, out_of_memory
from sticker_uq.detection.kernels.frozen import copy_model, freeze
from sticker_uq.detection.kernels.graphs import GraphedStages
from sticker_uq.detection.kernels.pixels import network_input, rgb_input
from sticker_uq.detection.models.family import Family
from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.detection.registry import detector_entry
from sticker_uq.detection.selection import Rows, keep_best
from sticker_uq.detection.settings import DetectorSettings, Precision
from sticker_uq.detection.weights import Unfilled, load_into, network_settings, packaged_weights
from sticker_uq.scene import Detections, InvalidInput, StochasticSamples

Kernels = Literal["fast", "reference"]
_P = ParamSpec("_P")
_R = TypeVar("_R")
ENGINE = 3
"""Changes when the same image, settings, weights and machine give other bytes than before: a comparison with a recording says so.

0: none was recorded. 1: the SSDs compute the boxes of candidates only, which moved them by up to 1.2e-4 px, and SSDLite its
smallest maps by oneDNN also without dropout; FPN models scale maps by 1 / (1 - rate) where they are dropped. 2: the SSDs' passes
compute logits less that of the background, SSD300 large maps as one product, and other boxes by the whole map.
3: close-ups are smaller, and count in what is a sticker.
"""
_TF32_CAPABILITY = (8, 0)
"""Compute capability from which a GPU has TF32 (Ampere)."""


def _inference(
    method: Callable[Concatenate[StochasticDetector, _P], _R],
) -> Callable[Concatenate[StochasticDetector, _P], _R]:
    """``method`` without gradients and with products as the detector's precision says."""

    @wraps(method)
    def wrapper(self: StochasticDetector, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with torch.no_grad(), self.products():
            return method(self, *args, **kwargs)

    return wrapper


class StochasticDetector:
    """A detector of the registry with Monte-Carlo dropout (Lu et al., sections 3.1 and 3.2.1).

    ``name``: the model; ``model``: its network, frozen and in evaluation mode; ``family``: how it
    is cut at its first dropout; ``weights_hash``: SHA-256 of its weights; ``chunk``: passes computed at once,
    which changes the speed and not the result. Probabilities are in the order background, logo, sticker.

    What is computed runs on a frozen copy of ``model``: later changes of its weights change nothing here.
    """

    def __init__(
        self, model: nn.Module, settings: DetectorSettings, weights_hash: str, kernels: Kernels = "fast"
    ) -> None:
        """``model``: as ``build_model(settings.model, min_size=settings.min_size)`` makes it, with weights.

        ``kernels``: "fast", or "reference" for the network's own modules and torch's own random generators, which the fast
        ones are measured against. Raises InvalidInput for a precision that the device does not have.
        """
        self.name = settings.model
        self.settings = settings
        self.weights_hash = weights_hash
        self.device = resolve_device(settings.device)
        self.model: Any = model.eval().requires_grad_(False).to(self.device)
        self._entry = detector_entry(settings.model)
        self._fast = kernels == "fast"
        self._copies: dict[torch.dtype, Any] = {}
        self._families: dict[tuple[torch.dtype, float, str], Family] = {}
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._prepare()

    def with_settings(self, settings: DetectorSettings) -> StochasticDetector:
        """A detector with the same weights and other ``settings`` of the same model and device, which shares its memory.

        Raises InvalidInput for another model, size, device or file of weights: those need a detector of their own.
        """
        for name in ("model", "weights", "min_size", "device"):
            mine, wanted = getattr(self.settings, name), getattr(settings, name)
            if mine != wanted:
                raise InvalidInput(f"{name} is {wanted!r}, expected {mine!r} as of the loaded detector")
        other = copy.copy(self)
        other.settings = settings
        other._prepare()
        return other

    @property
    def device_name(self) -> str:
        """The device in words: "cpu", or as in "cuda:0 NVIDIA H200"."""
        return name_of(self.device)

    def products(self) -> AbstractContextManager[None]:
        """In the block a GPU multiplies float32 as ``settings.precision`` says; see :func:`float32_products`."""
        return float32_products(self.settings.precision == "tf32", self.device)

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """What is computed on a GPU in the block has the detector's precision and a stream of its own.

        So two detectors share a GPU and do not wait for each other. What it computed must leave the GPU in the block. Changes
        nothing on a processor.
        """
        if self._stream is None:
            yield
            return
        # the weights may still be under way in the stream of whoever loaded them
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with self.products(), torch.cuda.stream(self._stream):
            yield

    @property
    def graph_problems(self) -> dict[str, str]:
        """Stages that are computed without a CUDA graph although the settings ask for graphs, and why."""
        return {} if self._graphed is None else self._graphed.graphs.problems

    def run_stage(
        self, stage: str, compute: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """``compute(*inputs)`` of another network on this device, by a CUDA graph where the settings ask so: ``Graphs.run``."""
        return compute(*inputs) if self._graphed is None else self._graphed.graphs.run(stage, compute, inputs)

    def free_memory(self) -> None:
        """Give back to the device what torch keeps for later.

        Call it when nothing refers to the tensors of a failed attempt any more, also no traceback.
        """
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _prepare(self) -> None:
        settings = self.settings
        self._dtype = _dtype(settings.precision, self.device)
        self.family = self._entry.reference(self.model, settings)
        self._exact = self._engine = self.family
        if self._fast:
            self._exact, self._engine = self._freeze(torch.float32), self._freeze(self._dtype)
        graphed = settings.graphs and self._fast and self.device.type == "cuda"
        self._graphed = GraphedStages(self._engine, self._exact) if graphed else None
        # few on a processor, all on a GPU
        automatic = self._entry.passes_at_once if self.device.type == "cpu" else settings.passes
        self.chunk = settings.passes_at_once or automatic

    def _freeze(self, dtype: torch.dtype) -> Family:
        """A frozen copy of the model, cut at its first dropout, by its fast kernels where the entry has some."""
        key = (dtype, self.settings.dropout_rate, self.settings.dropout_site)
        if key not in self._families:
            fast = self._entry.fast
            if dtype not in self._copies:
                self._copies[dtype] = freeze(self.model, dtype) if fast else copy_model(self.model).to(dtype)
            self._families[key] = (fast or self._entry.reference)(self._copies[dtype], self.settings)
        return self._families[key]

    @_inference
    def encode(self, image: NDArray[np.uint8]) -> Features:
        """The features of ``image`` (H, W, 3) uint8 BGR: everything before the first dropout, the same in every pass.

        Raises InvalidInput for anything but such an image, or one too narrow to be resized.
        """
        size = self._check(image)
        if self._fast:
            batch = network_input(self.model.transform, image, self.device)
        else:
            batch, _ = self.model.transform([rgb_input(image, self.device)])
        batch.tensors = batch.tensors.to(self._dtype)
        return (self._graphed or self._engine).encode(batch, size)

    @_inference
    def sample(self, features: Features, passes: int, seed: int) -> StochasticSamples:
        """Detections of ``passes`` stochastic passes.

        The masks of a pass depend on ``seed`` and its number only, so a pass is the same however many are asked for. With a
        dropout rate of 0 every pass equals :meth:`detect`. Where a GPU's memory does not suffice, ``chunk`` is halved for good.
        Raises InvalidInput if ``passes`` < 1 and NonFiniteOutput if the network produced NaN or infinity.
        """
        if passes < 1:
            raise InvalidInput(f"passes is {passes}, expected at least 1")
        if self.settings.dropout_rate == 0:
            return _repeat(self.detect(features), passes)
        groups: list[Rows] = []
        start = 0
        while start < passes:
            numbers = range(start, min(start + self.chunk, passes))
            rows = None
            try:
                rows = self._pass_rows(features, self.dropout(seed, numbers))
            except (RuntimeError, MemoryError) as error:
                if len(numbers) == 1 or not out_of_memory(error):
                    raise
            if rows is None:
                # another program, or another detector, has taken memory: a pass is the same in a smaller group. Not in the except
                # clause, whose traceback holds the tensors of the larger one
                self.chunk = len(numbers) // 2
                self.free_memory()
                continue
            groups.append(Rows(rows.boxes, rows.probabilities, rows.pass_index + start))
            start += len(numbers)
        return StochasticSamples(*_to_numpy(groups), passes)

    def dropout(self, seed: int, numbers: range) -> Dropout:
        """The dropout masks of the passes ``numbers`` of an image whose masks follow from ``seed``."""
        kind = CounterDropout if self._fast else PassDropout
        return kind(self.settings.dropout_rate, seed, numbers, self.device)

    @_inference
    def detect(self, features: Features) -> Detections:
        """Detections without dropout, by falling score. Raises NonFiniteOutput as :meth:`sample` does."""
        boxes, probabilities, _ = _to_numpy([self._plain_rows(features)])
        return Detections(boxes, probabilities)

    def detect_in(self, picture: NDArray[np.uint8]) -> Detections:
        """:meth:`detect` on a ``picture`` (H, W, 3) uint8 BGR of its own."""
        return self.detect(self.encode(picture))

    @_inference
    def head_maps(self, features: Features) -> list[Tensor]:
        """The maps without dropout that enter the heads, one (1, C, h, w) per level, fine to coarse."""
        exact = features.as_float32()
        maps = features.derive("head_maps", lambda: self._exact.head_maps(exact, no_dropout))
        return list(maps)

    @_inference
    def deterministic_pass(self, features: Features, least_score: float = 0.0) -> DeterministicPass:
        """One pass without dropout over the image of ``features``, with its objectness (DiL paper, section 3).

        Faster R-CNN: logits of the region proposal network; RetinaNet: the largest foreground sigmoid; SSD: one minus the
        background's softmax (objectness head, or class scores where there is none). The detections are those of
        :meth:`detect` whose score is at least ``least_score``. Raises NonFiniteOutput as :meth:`sample` does.
        """
        maps = leaves(self.head_maps(features))
        # candidates have to be above the floor; better boxes alone decide whether a box is suppressed
        below = float(np.nextafter(np.float32(least_score), np.float32(0)))
        floor = max(self.settings.score_floor, below)
        outputs = self._exact.head_outputs(features.as_float32(), maps, floor)
        rows = self._suppress(features, outputs.rows, floor)
        return DeterministicPass(
            features=features,
            maps=tuple(maps),
            objectness=outputs.objectness,
            two_stage=self.family.two_stage,
            anchors=outputs.anchors,
            decode_boxes=outputs.decode_boxes,
            detections=Detections(rows.boxes.numpy(), rows.probabilities.numpy()),
            tf32=self.settings.precision == "tf32",
        )

    def _check(self, image: NDArray[np.uint8]) -> tuple[int, int]:
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
            raise InvalidInput(
                f"image has shape {image.shape} and type {image.dtype}, expected (H, W, 3) uint8 BGR"
            )
        height, width = image.shape[:2]
        transform = self.model.transform
        if transform.fixed_size is None:
            short, long = min(height, width), max(height, width)
            if short * min(transform.min_size[0] / short, transform.max_size / long) < 1:
                raise InvalidInput(f"image is {width}x{height} px, expected sides that differ less")
        return width, height

    def _pass_rows(self, features: Features, dropout: Dropout) -> Rows:
        """The boxes of the passes of ``dropout`` after threshold and suppression, px of the original image."""
        floor = self.settings.score_floor
        if self._graphed is not None and isinstance(dropout, CounterDropout):
            rows = self._graphed.pass_rows(features, dropout, floor)
        else:
            rows = self._engine.candidates(
                features, self._engine.head_maps(features, dropout), dropout, floor
            )
        return self._suppress(features, rows, floor)

    def _plain_rows(self, features: Features) -> Rows:
        """The same without dropout, always in single precision."""
        exact, floor = features.as_float32(), self.settings.score_floor
        if self._graphed is not None:
            rows = self._graphed.plain_rows(exact, floor)
        else:
            rows = self._exact.head_outputs(exact, self.head_maps(features), floor).rows
        return self._suppress(features, rows, floor)

    def _suppress(self, features: Features, rows: Rows, score_floor: float) -> Rows:
        # suppression is a loop over passes and classes, at each step of which a GPU would have to be waited for
        rows = rows.on_processor(score_floor)
        rows = keep_best(rows, features.resized, self.settings.nms_threshold, self.settings.max_detections)
        (height, width), (original_width, original_height) = features.resized, features.image_size
        scale = rows.boxes.new_tensor([original_width / width, original_height / height] * 2)
        limit = rows.boxes.new_tensor([original_width, original_height] * 2)
        return Rows((rows.boxes * scale).minimum(limit), rows.probabilities, rows.pass_index)


def load_detector(settings: DetectorSettings) -> StochasticDetector:
    """The detector that ``settings`` describe, with the weights of ``settings.weights`` or the packaged ones.

    Raises InvalidInput when there are no weights, when they do not fit (see ``weights.load_into``), or when the device does not
    exist. Sets the number of torch's threads of this process if ``settings.threads`` is not 0.
    """
    if resolve_device(settings.device).type == "cpu":
        keep_freed_memory()
    path = settings.weights or packaged_weights(settings.model)
    if path is None:
        raise InvalidInput(
            f"there are no packaged weights of model {settings.model!r}: train some with `sticker-uq train --data "
            f"COCO_FOLDER --model {settings.model}` and give their file as `weights`"
        )
    if settings.threads:
        torch.set_num_threads(settings.threads)
    # a model of another package may need what it computes while it is built
    with Unfilled() if settings.model in MODEL_NAMES else nullcontext():
        network = network_settings(path)
        model = build_model(settings.model, min_size=settings.min_size, **network)
    metadata = load_into(model, settings.model, path)
    learned = metadata.get("input_size", settings.min_size)  # of SSDs it is part of the network
    fixed = detector_entry(settings.model).fixed_input_size
    if fixed and not network and "model" not in metadata:
        # those of `train` say both unless they are torchvision's
        transform: Any = model.transform
        size = transform.min_size[0]
        warnings.warn(
            f"no input size in {path}: {size} px and torchvision's default boxes are used; beside the "
            "state dict of another network save 'network': {'input_size': PX, 'anchor_scales': [FRACTION, ...]}",
            stacklevel=2,
        )
    if isinstance(learned, int) and learned not in (0, settings.min_size) and not fixed:
        warnings.warn(
            f"{path} learned from images whose shorter side is {learned} px, and sees them at {settings.min_size} px: "
            f"give min_size {learned} unless that is meant",
            stacklevel=2,
        )
    return StochasticDetector(model, settings, metadata["checksum"])


def resolve_device(name: str) -> torch.device:
    """The torch device of "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N".

    Raises InvalidInput if that GPU does not exist.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        if (device.index or 0) >= gpus:
            raise InvalidInput(
                f"device {name!r} does not exist ({gpus} CUDA devices found), expected cpu or auto"
            )
        torch.backends.cudnn.deterministic = True  # the same image and seed must give the same result
    return device


def name_of(device: torch.device) -> str:
    """``device`` in words: "cpu", or as in "cuda:0 NVIDIA H200"."""
    if device.type == "cpu":
        return "cpu"
    number = device.index or 0
    return f"cuda:{number} {torch.cuda.get_device_name(number)}"


def _dtype(precision: Precision, device: torch.device) -> torch.dtype:
    if precision in ("float16", "tf32"):
        if device.type == "cpu":
            raise InvalidInput(
                f"precision {precision} needs a GPU, expected float32 or bfloat16 on a processor"
            )
        if precision == "tf32" and torch.cuda.get_device_capability(device) < _TF32_CAPABILITY:
            raise InvalidInput(f"{name_of(device)} has no tf32, expected precision float32 or float16")
    kinds = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    return kinds.get(precision, torch.float32)


def _repeat(detections: Detections, passes: int) -> StochasticSamples:
    index = np.repeat(np.arange(passes), len(detections))
    boxes, probabilities = detections.boxes, detections.probabilities
    return StochasticSamples(np.tile(boxes, (passes, 1)), np.tile(probabilities, (passes, 1)), index, passes)


def _to_numpy(groups: list[Rows]) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    columns = ([r.boxes for r in groups], [r.probabilities for r in groups], [r.pass_index for r in groups])
    boxes, probabilities, index = (torch.cat(c).numpy() for c in columns)
    return boxes, probabilities, index
