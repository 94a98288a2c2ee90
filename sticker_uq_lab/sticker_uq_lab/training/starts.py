# SPDX-License-Identifier: Apache-2.0
"""What a training starts from: weights that are there or can be downloaded, and the input size and default boxes that fit."""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError

from torch import Tensor, nn
from torchvision.models import get_model_weights

from sticker_uq.detection.models.mobilenet_v2 import fill_backbone
from sticker_uq.detection.names import MODEL_NAMES, PHOTO_MODEL
from sticker_uq.detection.registry import detector_entry
from sticker_uq.detection.weights import (
    COUNTERS,
    PathLike,
    load_into,
    load_weights,
    network_settings,
    packaged_weights,
)
from sticker_uq.io.coco import LabelledImage
from sticker_uq.perception.novelty.photo_network import read_photo_network
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.default_boxes import OVERLAP, covered_share, fit_scales
from sticker_uq_lab.training.settings import TrainSettings

_TIMEOUT = 10.0  # seconds
_BODIES = ("backbone.body.", "backbone.features.")  # of the FPN models, of the SSD models


@dataclass(frozen=True)
class Start:
    """``name``: torchvision, packaged, photographs, random or a weights file; name and tensors of torchvision's weights."""

    name: str
    published: tuple[str, Mapping[str, Tensor]] | None = None


def find_start(asked: str, model: str, say: Callable[[str], None]) -> Start:
    """What ``--start`` means for ``model``; InvalidInput for weights of torchvision that cannot be had."""
    if asked not in ("auto", "torchvision"):
        return Start(asked)
    if (published := published_weights(model, say)) is not None:
        return Start("torchvision", published)
    if asked == "torchvision":
        raise InvalidInput(
            "start torchvision: expected a connection to download its weights by, a model that it has some of, or another start"
        )
    if packaged_weights(model) is not None:
        return Start("packaged")
    return Start("photographs" if model == PHOTO_MODEL else "random")


def choose_network(
    settings: TrainSettings, items: Sequence[LabelledImage], start: Start, say: Callable[[str], None]
) -> dict[str, Any]:
    """Input size and default boxes: as set, else those of the weights to start from, else what fits the labels."""
    name = settings.model
    if not detector_entry(name).fixed_input_size:
        return {}
    before: dict[str, Any] = {}
    heads_are_taken = False
    if start.name not in ("torchvision", "photographs", "random"):
        path = packaged_weights(name) if start.name == "packaged" else start.name
        before = network_settings(path) if path else {}
        heads_are_taken = path is not None and load_weights(path)[1].get("model", name) == name
    size = settings.input_size or before.get("input_size", 0)
    scales = settings.anchor_scales or tuple(before.get("anchor_scales", ()))
    if not scales and not heads_are_taken:  # heads know no boxes but those that they were trained with
        scales = fit_scales(items, name, size)
    network = {"input_size": size, "anchor_scales": list(scales)}
    if size or scales:
        say(f"default boxes from {min(scales, default=0):g} of the picture, input of {size or 'its own'} px")
    share = covered_share(items, name, input_size=size, anchor_scales=tuple(scales))
    say(f"a default box overlaps {share:.0%} of the labelled boxes by {OVERLAP:g} or more")
    return network if size or scales else {}


def fill(model: nn.Module, name: str, start: Start, say: Callable[[str], None]) -> str:
    """Give ``model`` the weights of ``start``; returns a description of them."""
    if start.published is not None:
        return fill_from_published(model, start.published, say)
    if start.name == "random":
        say("starting from random weights")
        return start.name
    if start.name == "packaged":
        return fill_from_package(model, name, say)
    if start.name == "photographs":
        return fill_from_photographs(model, name, say)
    return fill_from_file(model, name, start.name, say)


def published_weights(name: str, say: Callable[[str], None]) -> tuple[str, Mapping[str, Tensor]] | None:
    """Name and tensors of torchvision's COCO weights of a model; None, and ``say`` is told, when there are none to download."""
    try:
        weights = get_model_weights(name).DEFAULT
    except ValueError:
        say(f"torchvision has no weights of {name}")
        return None
    try:
        with _socket_timeout(_TIMEOUT):
            return str(weights), weights.get_state_dict(progress=False, check_hash=True)
    except (URLError, OSError, RuntimeError) as error:
        reason = str(getattr(error, "reason", error)).splitlines()[0]
        say(f"torchvision's weights cannot be downloaded ({reason})")
        return None


def fill_from_published(
    model: nn.Module, published: tuple[str, Mapping[str, Tensor]], say: Callable[[str], None]
) -> str:
    """Load ``published`` weights wherever shapes agree, that is all but the class layers; returns their name."""
    name, state = published
    own = model.state_dict()
    fitting = {key: value for key, value in state.items() if key in own and own[key].shape == value.shape}
    model.load_state_dict(fitting, strict=False)
    say(f"starting from torchvision's {name} ({len(fitting)} of {len(own)} tensors)")
    return name


def fill_from_package(model: nn.Module, name: str, say: Callable[[str], None]) -> str:
    """Load the packaged weights, as :func:`fill_from_file`; InvalidInput for a model without any."""
    path = packaged_weights(name)
    if path is None:
        having = [known for known in MODEL_NAMES if packaged_weights(known) is not None]
        raise InvalidInput(
            f"start packaged: there are no packaged weights of model {name!r}; expected {' or '.join(map(repr, having))}, or "
            "another start"
        )
    say(f"starting from the packaged weights of {name}")
    return fill_from_file(model, name, path, say)


def fill_from_photographs(model: nn.Module, name: str, say: Callable[[str], None]) -> str:
    """Load the backbone of the network that has seen photographs, all else stays random; InvalidInput for another model."""
    if name != PHOTO_MODEL:
        raise InvalidInput(f"start photographs: is for model {PHOTO_MODEL!r}, found {name!r}")
    network = read_photo_network()
    fill_backbone(model, network.features)
    say(f"starting from a backbone of {name} that has seen photographs, all else random")
    return f"backbone of the photo network {network.hash[:16]}"


def fill_from_file(model: nn.Module, name: str, path: PathLike, say: Callable[[str], None]) -> str:
    """Load a weights file into ``model``; returns a description of the weights.

    Of weights of another model with the same backbone (four have a ResNet-50) only the backbone is loaded, and all
    other layers stay random.
    """
    state, metadata = load_weights(path)
    origin = metadata.get("model", name)
    if origin == name:
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
