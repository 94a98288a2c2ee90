# SPDX-License-Identifier: Apache-2.0
"""The panel of monitors at run time: fitted for one detector, each with the limit above which it objects to an object."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sticker_uq.detection import Features, StochasticDetector
from sticker_uq.perception.monitors.detections import Probe, observe_boxes
from sticker_uq.perception.monitors.interface import Monitor, Objects
from sticker_uq.scene import InvalidInput, MonitorScore, ObservedObject, StochasticSamples

OF_PASSES = (
    *("dropout_rate", "dropout_site", "passes"),
    *("score_floor", "nms_threshold", "max_detections", "min_size"),
)
"""Settings of a detector that scores and limits depend on."""


@dataclass(frozen=True)
class PanelMember:
    """A monitor with a vote in the panel, which objects to scores above ``limit``."""

    monitor: Monitor
    limit: float

    @property
    def name(self) -> str:
        return self.monitor.name


class Panel:
    """Fitted monitors of one detector. Not thread-safe.

    ``voters``: who votes; ``hash``: SHA-256 over everything that was fitted and who votes, hex. ``monitors.folder.load_panel``
    makes it.
    """

    def __init__(self, voters: Sequence[PanelMember], probe: Probe, fitted_hash: str) -> None:
        self.voters = tuple(voters)
        names = ",".join(voter.name for voter in self.voters)
        self.hash = hashlib.sha256(f"{fitted_hash}:{names}".encode()).hexdigest()
        self._probe = probe

    def score_objects(
        self,
        detector: StochasticDetector,
        image: NDArray[np.uint8],
        features: Features,
        samples: StochasticSamples,
        objects: tuple[ObservedObject, ...],
    ) -> tuple[ObservedObject, ...]:
        """``objects`` of ``image`` (H, W, 3) uint8 BGR with what each monitor says about them.

        ``features`` and ``samples``: what the detector made of the image. The same input gives the same scores.
        """
        if not objects:
            return objects
        seen = observe_objects(detector, image, features, samples, objects, self._probe)
        scores = [voter.monitor.score(seen) for voter in self.voters]
        return tuple(
            replace(
                one,
                monitors=tuple(
                    MonitorScore(voter.name, float(values[row]), voter.limit)
                    for voter, values in zip(self.voters, scores, strict=True)
                ),
            )
            for row, one in enumerate(objects)
        )


def observe_objects(
    detector: StochasticDetector,
    image: NDArray[np.uint8],
    features: Features,
    samples: StochasticSamples,
    objects: Sequence[ObservedObject],
    probe: Probe | None = None,
) -> Objects:
    """The clustered ``objects`` of ``image`` as monitors see them; class vectors are means over the passes.

    Without a ``probe`` there are no logits.
    """
    boxes = np.array([one.box for one in objects], np.float32).reshape(-1, 4)
    vectors = np.array([one.probabilities for one in objects], np.float64).reshape(-1, 3)
    return observe_boxes(detector, image, features, boxes, vectors, samples, probe)


def same_passes(fitted: dict[str, object], detector: StochasticDetector) -> None:
    """Raise InvalidInput naming the setting in which ``detector`` differs from the one ``fitted`` for."""
    for name in OF_PASSES:
        own = getattr(detector.settings, name)
        if fitted.get(name) != own:
            raise InvalidInput(f"the panel was fitted with {name} = {fitted.get(name)!r}, not {own!r}")
