"""Weights to start a training from."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.error import URLError

from torch import nn
from torchvision.models import get_model_weights

_TIMEOUT = 10.0  # seconds


def fill_from_torchvision(model: nn.Module, name: str, say: Callable[[str], None]) -> str:
    """Copy torchvision's COCO weights into ``model`` wherever the shapes agree: all but the class layers.

    Returns their name, or "random" when they cannot be downloaded, after saying so in one line.
    """
    weights = get_model_weights(name).DEFAULT
    try:
        with _socket_timeout(_TIMEOUT):
            state = weights.get_state_dict(progress=False, check_hash=True)
    except (URLError, OSError, RuntimeError) as error:
        reason = str(getattr(error, "reason", error)).splitlines()[0]
        say(f"torchvision's weights cannot be downloaded ({reason}): starting from random weights")
        return "random"
    own = model.state_dict()
    fitting = {key: value for key, value in state.items() if key in own and own[key].shape == value.shape}
    model.load_state_dict(fitting, strict=False)
    say(f"starting from torchvision's {weights} ({len(fitting)} of {len(own)} tensors)")
    return str(weights)


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """urllib waits forever by default, and torch.hub gives no way to tell it otherwise."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
