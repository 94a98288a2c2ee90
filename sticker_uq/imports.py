# SPDX-License-Identifier: Apache-2.0
"""Importing what a process needs, and no more: names of a package when they are used, torchvision without the compiler of torch.

One line of ``torchvision.ops.roi_align`` (0.27) imports ``torch._dynamo`` for a function that only says whether
compiling is possible. Every process that detects would pay for it at its start (1.3 s of processor time, 140 MB).
Here that line gets a function that imports the compiler when it is called, in the commands, nodes and worker processes of this
package; a program that imports the package is left alone.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.abc import Loader


def when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of ``package`` that loads names from their modules, ``homes``, when they are first used."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get


_COMPILER = ("torch._dynamo", "torch._dynamo.utils")


def is_compile_supported(device_type: object) -> bool:
    """Return what ``torch._dynamo.utils.is_compile_supported`` says of a kind of device."""
    return bool(import_module("torch._dynamo.utils").is_compile_supported(device_type))


class _WithoutCompiler:
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        stand_ins = {name: ModuleType(name) for name in _COMPILER}
        stand_ins["torch._dynamo.utils"].__dict__["is_compile_supported"] = is_compile_supported
        sys.modules.update(stand_ins)
        try:
            self.loader.exec_module(module)
        finally:
            for name in _COMPILER:
                del sys.modules[name]


class _RoiAlignFinder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision.ops.roi_align" or "torch._dynamo" in sys.modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WithoutCompiler(spec.loader)  # type: ignore[assignment]
        return spec


def import_torchvision_without_compiler() -> None:
    """Make later imports of torchvision leave torch's compiler out. Nothing changes where it is loaded already."""
    if not any(isinstance(finder, _RoiAlignFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _RoiAlignFinder())
