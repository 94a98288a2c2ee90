# SPDX-License-Identifier: Apache-2.0
"""Initial weights of a training."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.error import URLError

from torch import nn
from torchvision.models import get_model_weights

from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.detection.weights import COUNTERS, PathLike, load_into, load_weights, packaged_weights
from sticker_uq.lab.training.settings import Taken
from sticker_uq.scene import InvalidInput

_TIMEOUT = 10.0  # seconds
_BODIES = ("backbone.body.", "backbone.features.")  # of the FPN models, of the SSD models


def fill_from_torchvision(model: nn.Module, name: str, say: Callable[[str], None]) -> str:
    """Start a training from torchvision's COCO weights in ``model`` wherever shapes agree: all but the class layers.

    Returns their name. When they cannot be downloaded, the packaged weights of the model are loaded, and where there are none
    the weights stay random ("random"); ``say`` is told.
    """
    weights = get_model_weights(name).DEFAULT
    try:
        with _socket_timeout(_TIMEOUT):
            state = weights.get_state_dict(progress=False, check_hash=True)
    except (URLError, OSError, RuntimeError) as error:
        reason = str(getattr(error, "reason", error)).splitlines()[0]
        if packaged_weights(name) is None:
            say(f"torchvision's weights cannot be downloaded ({reason}): starting from random weights")
            return "random"
        say(f"torchvision's weights cannot be downloaded ({reason})")
        return fill_from_package(model, name, say)
    own = model.state_dict()
    fitting = {key: value for key, value in state.items() if key in own and own[key].shape == value.shape}
    model.load_state_dict(fitting, strict=False)
    say(f"starting from torchvision's {weights} ({len(fitting)} of {len(own)} tensors)")
    return str(weights)


def fill_from_package(model: nn.Module, name: str, say: Callable[[str], None], take: Taken = "all") -> str:
    """Start a training of ``model`` from the packaged weights, as :func:`fill_from_file`; InvalidInput for a model without
    any.
    """
    path = packaged_weights(name)
    if path is None:
        having = [known for known in MODEL_NAMES if packaged_weights(known) is not None]
        raise InvalidInput(
            f"start packaged: there are no packaged weights of model {name!r}; expected {' or '.join(map(repr, having))}, or "
            "another start"
        )
    say(f"starting from the packaged weights of {name}")
    return fill_from_file(model, name, path, say, take)


def fill_from_file(
    model: nn.Module, name: str, path: PathLike, say: Callable[[str], None], take: Taken = "all"
) -> str:
    """Start a training of ``model`` from a weights file; returns a description of the weights.

    With ``take`` "backbone" only the backbone is loaded and all other layers stay random: members of an ensemble with the same
    start then differ in their pyramids or further layers and in their heads. The same applies to weights of another model with
    the same backbone (four of the six have a ResNet-50). Raises InvalidInput as
    `load_into` does, and for weights of another model with another backbone.
    """
    state, metadata = load_weights(path)
    origin = metadata.get("model", name)
    if origin == name and take == "all":
        load_into(model, name, path)
        taken = "weights"
    else:
        own = {
            k: v for k, v in model.state_dict().items() if k.startswith(_BODIES) and not k.endswith(COUNTERS)
        }
        found = {key: state[key] for key in own if key in state and state[key].shape == own[key].shape}
        if not own or len(found) < len(own):
            raise InvalidInput(
                f"weights file {path} is for model {origin!r}: expected {name!r}, or one with the same backbone"
            )
        model.load_state_dict(found, strict=False)
        say(f"starting from the backbone of {origin} in {path}, all else random")
        taken = f"backbone of {origin}"
    made_by = metadata.get("command")
    return f"{taken} {metadata['checksum'][:16]}" + (f" of `{made_by}`" if made_by else "")


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Set a default socket timeout: urllib has none, and torch.hub has no option for it."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
