# SPDX-License-Identifier: Apache-2.0
"""Pieces of a monitor study on the disk, from which an interrupted one goes on: pictures, networks, numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import nn

from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import read_bytes

T = TypeVar("T")
N = TypeVar("N", bound=nn.Module)
Arrays = dict[str, NDArray[Any]]
_MOST_NETWORK = 1 << 30


def fingerprint(named: Any, *arrays: NDArray[Any]) -> str:
    """Identity of a monitor study's piece: 16 hex digits over what is ``named`` and the arrays."""
    digest = hashlib.blake2b(json.dumps(named, sort_keys=True).encode(), digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def kept_arrays(path: Path | None, make: Callable[[], Arrays]) -> Arrays:
    """The arrays of a monitor study in the file ``path``, made and written there if it is absent; None: made anew."""
    if path is not None and path.is_file():
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    found = make()
    if path is not None:
        with atomic_write(path) as stream:
            np.savez(stream, allow_pickle=False, **found)
    return found


def kept_document(path: Path | None, make: Callable[[], Any]) -> Any:
    """The JSON document ``path``, made and written there if it is absent; None: made anew."""
    if path is not None and path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    found = make()
    if path is not None:
        with atomic_write(path, "w") as stream:
            json.dump(found, stream)
    return found


def kept_network(path: Path | None, empty: Callable[[], N], make: Callable[[], N]) -> N:
    """The network, whose weights are in the file ``path``, made and written there if it is absent.

    ``empty``: the network with any weights; None for ``path``: made anew.
    """
    if path is not None and path.is_file():
        network = empty()
        network.load_state_dict(load(read_bytes(path, _MOST_NETWORK)))
        return network.eval().requires_grad_(False)
    network = make()
    if path is not None:
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(save({name: value.contiguous() for name, value in network.state_dict().items()}))
    return network
