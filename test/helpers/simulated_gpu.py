# SPDX-License-Identifier: Apache-2.0
"""A GPU that is none: tensors that say they lie on cuda:0, computed on the processor, and as strict as a real one.

An operation on tensors of two devices fails as on a GPU, and so do one that exists for processors only and one that reads what
another stream may not have written yet. Division by a number rounds as CUDA does it; what else CUDA would round differently, and
its speed, no simulation shows.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

GPU = torch.device("cuda:0")
_CPU = torch.device("cpu")
_ONLY_CPU = ("mkldnn", "mkl_linear", "onednn", "from_file")
_WAITING = (
    "aten::nonzero", "aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::_unique", "aten::_unique2",
    "aten::unique_dim", "aten::unique_consecutive", "aten::masked_select", "aten::bincount", "aten::_linalg_eigh",
    "torchvision::nms",
)  # fmt: skip
_PRODUCTS = ("aten::convolution", "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
_TRANSFERS = ("aten::_to_copy", "aten::copy_", "aten::_local_scalar_dense", "aten::lift_fresh")


class OnGpu(torch.Tensor):
    """A tensor of the simulated GPU; ``held`` has its values; ``written``: in which simulation, by which stream, as its
    how manieth operation.
    """

    held: Tensor
    written: tuple[Simulation, Stream, int] | None = None

    @staticmethod
    def __new__(cls, held: Tensor) -> OnGpu:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=GPU,
            requires_grad=held.requires_grad,
        )
        made.held = held
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        # without these two torch gives a module's parameters new storage instead of a new class
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> OnGpu:
        return OnGpu(inner["held"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class Stream:
    """A stream of the simulated GPU; ``waited_for``: streams whose work it began after; ``operations``: how many it was given;
    ``done``: how many of each other stream are done before whatever comes next in this one.
    """

    def __init__(self, device: object = None) -> None:
        self.waited_for: list[Stream] = []
        self.operations = 0
        self.done: dict[Stream, int] = {}

    def wait_stream(self, other: Stream) -> None:
        self.waited_for.append(other)
        self.done |= other.done | {other: other.operations}


class Simulation(TorchDispatchMode):
    """Sees every operation, factories and copies to the GPU too; ``waits``: those in which the processor waits for the GPU;
    ``streams``: how many operations went into each; ``products``: which kinds of convolutions and matrix products torch was set
    to while there were some, float32 ones only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.streams: Counter[Stream] = Counter()
        self.products: set[tuple[str, str]] = set()
        self.default = self._current = Stream()
        self.captured: list[Replayed] | None = None
        self._waited_for: dict[Stream, int] = {}  # by the processor

    @contextmanager
    def into(self, stream: Stream) -> Iterator[None]:
        before, self._current = self._current, stream
        try:
            yield
        finally:
            self._current = before

    @contextmanager
    def capture(self, graph: Graph, pool: object = None) -> Iterator[None]:
        self.captured = graph.operations
        try:
            yield
        finally:
            self.captured = None

    def current(self, device: object = None) -> Stream:
        return self._current

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func._schema.name
        tensors = _tensors(args, kwargs)
        there = any(isinstance(t, OnGpu) for t in tensors)
        if there:
            self.streams[self._current] += 1
            self._refuse_races(name, tensors)
        if there and name in _PRODUCTS and tensors[0].dtype == torch.float32:
            cudnn, cublas = torch.backends.cudnn.conv, torch.backends.cuda.matmul
            self.products.add((str(cudnn.fp32_precision), str(cublas.fp32_precision)))
        waits = _waits(name, args, kwargs, tensors, there)
        if self.captured is not None:
            self._refuse_capture(name, waits, tensors, there, kwargs)
        if waits:
            self.waits[name] += 1
            self._waited_for[self._current] = self._current.operations
        found = _computed(func, args, kwargs)
        self._current.operations += 1
        for made in found if isinstance(found, list | tuple) else (found,):
            if isinstance(made, OnGpu):
                made.written = self, self._current, self._current.operations
        if self.captured is not None and any(isinstance(t, OnGpu) for t in _tensors((found,), {})):
            self.captured.append(Replayed(func, args, kwargs, found))
        return found

    def _refuse_capture(
        self, name: str, waits: bool, tensors: list[Tensor], there: bool, kwargs: dict[str, Any]
    ) -> None:
        """Raise RuntimeError for what a graph cannot hold: a wait, or a value that lies on the processor."""
        brought = not there and str(kwargs.get("device", "cpu")).startswith("cuda") and tensors
        if waits or brought or (there and any(not isinstance(t, OnGpu) and t.ndim for t in tensors)):
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")

    def _refuse_races(self, name: str, tensors: list[Tensor]) -> None:
        """Raise RuntimeError for an operation on what another stream may not have written yet."""
        for written in (t.written for t in tensors if isinstance(t, OnGpu)):
            if written is None or written[0] is not self or written[1] is self._current:
                continue
            _, stream, number = written
            if number > max(self._waited_for.get(stream, 0), self._current.done.get(stream, 0)):
                raise RuntimeError(f"{name} reads what another stream may not have written yet")


@dataclass
class Replayed:
    """One operation of a graph, and the tensors that it wrote when it was captured."""

    func: Any
    args: Any
    kwargs: dict[str, Any]
    found: Any

    def again(self) -> None:
        made = _computed(self.func, self.args, self.kwargs)
        pairs = zip(*((x if isinstance(x, list | tuple) else (x,)) for x in (self.found, made)), strict=True)
        for old, new in pairs:
            if isinstance(old, OnGpu) and old.held.data_ptr() != new.held.data_ptr():
                old.held.copy_(new.held)


class Graph:
    """A CUDA graph of the simulated GPU: its operations run again, on the same tensors, without the code that made them."""

    def __init__(self) -> None:
        self.operations: list[Replayed] = []

    def pool(self) -> tuple[int, int]:
        return 0, 1

    def replay(self) -> None:
        for one in self.operations:
            one.again()


def _tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors in the arguments of an operation, which nest no deeper than lists."""
    return [
        t
        for argument in (*args, *kwargs.values())
        for t in (argument if isinstance(argument, list | tuple) else (argument,))
        if isinstance(t, Tensor)
    ]


def _waits(name: str, args: Any, kwargs: dict[str, Any], tensors: list[Tensor], there: bool) -> bool:
    """Whether the processor has to know a value or a number of values that the GPU computes, or waits for a copy to be made."""
    if name == "aten::_to_copy":
        to = kwargs.get("device")
        crosses = to is not None and (torch.device(to).type == "cpu") == there
        return crosses and not kwargs.get("non_blocking") and tensors[0].numel() > 0
    if name == "aten::copy_":
        blocks = not (kwargs.get("non_blocking") or args[2:3] == (True,))
        return isinstance(args[0], OnGpu) != isinstance(args[1], OnGpu) and blocks
    if name.startswith("aten::index") and there:
        # an index that lies on the processor is copied, one of bool counted
        given = [t for t in args[1] if isinstance(t, Tensor)]
        return any(t.dtype == torch.bool or not isinstance(t, OnGpu) for t in given)
    if name == "aten::where":
        # the only operation that copies a number which lies on the processor, even one written as a literal
        return there and any(not isinstance(t, OnGpu) for t in tensors)
    if name == "aten::repeat_interleave":
        return there and kwargs.get("output_size") is None
    return there and name in _WAITING


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func._schema.name
    tensors = _tensors(args, kwargs)
    there = [t for t in tensors if isinstance(t, OnGpu)]
    wanted = kwargs.get("device")
    target = torch.device(wanted).type if wanted is not None else ("cuda" if there else "cpu")
    if target == "cpu" and not there:
        return func(*args, **kwargs)
    if there and any(part in name for part in _ONLY_CPU):
        raise NotImplementedError(f"{name} does not exist for tensors of {GPU}")
    # a number without dimensions may come from the processor
    if there and name not in _TRANSFERS:
        foreign = [t for t in tensors if not isinstance(t, OnGpu) and t.ndim > 0]
        if foreign and not name.startswith("aten::index"):
            raise RuntimeError(f"{name}: expected all tensors to be on the same device, found {GPU} and cpu")
    computed = func
    if func is torch.ops.aten.div.Tensor and tensors[0].ndim and _is_number(args[1]):
        # as CUDA does: the processor divides
        computed, args = torch.ops.aten.mul.Tensor, (args[0], torch.tensor(1.0) / args[1])
    elif name == "aten::cudnn_batch_norm":
        computed = _batch_norm
    held_args, held_kwargs = _each(_held, args), {key: _each(_held, value) for key, value in kwargs.items()}
    if wanted is not None:
        held_kwargs["device"] = _CPU
    held_kwargs.pop("pin_memory", None)
    found = computed(*held_args, **held_kwargs)
    if target == "cuda":
        found = _each(_brought, found)
    if not there:
        return found
    return return_and_correct_aliasing(func, args, kwargs, found)


def _batch_norm(*args: Any) -> tuple[Tensor, ...]:
    """cuDNN's, which keeps one more tensor for a gradient."""
    return *torch.ops.aten.native_batch_norm(*args), args[0].new_empty(0)


def _is_number(value: Any) -> bool:
    """Whether torch treats ``value`` as a number: written as one, or a tensor without dimensions of the processor."""
    return not isinstance(value, OnGpu) and (not isinstance(value, Tensor) or value.ndim == 0)


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """``value`` with ``change`` made to it, or to each of its members if it is a list or a tuple."""
    return type(value)(map(change, value)) if type(value) in (list, tuple) else change(value)


def _held(value: Any) -> Any:
    return _each(lambda v: v.held if isinstance(v, OnGpu) else v, value)


def _brought(value: Any) -> Any:
    return OnGpu(value) if isinstance(value, Tensor) and not isinstance(value, OnGpu) else value


@contextmanager
def simulated_gpu() -> Iterator[Simulation]:
    """A machine with one GPU inside the block."""
    # torch imports it at the first layer that is made, which fails in the middle of a simulation
    importlib.import_module("torch._dynamo")
    torch._C._ensureCUDADeviceGuardSet()  # as torch's own FakeTensorMode does
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with pytest.MonkeyPatch.context() as patch, Simulation() as simulation:
            patch.setattr(torch.cuda, "is_available", lambda: True)
            patch.setattr(torch.cuda, "device_count", lambda: 1)
            patch.setattr(torch.cuda, "get_device_name", lambda device=None: "Simulated")
            patch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
            patch.setattr(torch.cuda, "_lazy_init", lambda: None)
            patch.setattr(torch, "Generator", lambda device=None, made=torch.Generator: made("cpu"))
            patch.setattr(torch.cuda, "empty_cache", lambda: None)
            patch.setattr(torch.cuda, "Stream", Stream)
            patch.setattr(torch.cuda, "stream", simulation.into)
            patch.setattr(torch.cuda, "current_stream", simulation.current)
            patch.setattr(torch.cuda, "CUDAGraph", Graph)
            patch.setattr(torch.cuda, "graph", simulation.capture)
            # which classes of tensors cannot be made in
            patch.setattr(torch, "inference_mode", torch.no_grad)
            patch.setattr(Tensor, "pin_memory", lambda self: self)  # only a driver can pin
            yield simulation
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
