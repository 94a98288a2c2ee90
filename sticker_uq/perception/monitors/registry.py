# SPDX-License-Identifier: Apache-2.0
"""All monitors by name."""

import difflib
from typing import Any

from sticker_uq.perception.monitors import autoencoder, dissector, feature_distance
from sticker_uq.perception.monitors.class_vectors import ENERGY, PAPER_VECTORS
from sticker_uq.perception.monitors.interface import Monitor
from sticker_uq.perception.monitors.task_network import TaskNetwork
from sticker_uq.scene import InvalidInput

PAPER: tuple[type[Monitor], ...] = (
    *PAPER_VECTORS,
    dissector.Dissector,
    autoencoder.Autoencoder,
    feature_distance.LikelihoodSurprise,
    feature_distance.DistanceSurprise,
    feature_distance.MahalanobisSurprise,
)
"""The sixteen of Weiss et al. 2022."""
MODERN: tuple[type[Monitor], ...] = (
    feature_distance.RelativeMahalanobis,
    ENERGY,
    feature_distance.NearestNeighbours,
)
"""Later ones on the same inputs."""
MONITORS: dict[str, type[Monitor]] = {kind.name: kind for kind in (*PAPER, *MODERN)}
TASK = TaskNetwork.name
"""The network for one decision: not in a study of the others, but with a vote where it was fitted."""
_KNOWN: dict[str, type[Monitor]] = {**MONITORS, TASK: TaskNetwork}


def monitor_named(name: str, **settings: Any) -> Monitor:
    """A new monitor of that name; InvalidInput when there is none, TypeError for unknown settings."""
    if name not in _KNOWN:
        close = difflib.get_close_matches(name, _KNOWN, 1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(_KNOWN)}"
        raise InvalidInput(f"monitor {name!r}: {hint}")
    return _KNOWN[name](**settings)
