# SPDX-License-Identifier: Apache-2.0
"""Everything that decides what perception says about an image, as one flat model for nodes and command line."""

from __future__ import annotations

import hashlib
import json
import os

from pydantic import Field

from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.io.setting_fields import same_field
from sticker_uq.perception.dil.settings import LocalizationSettings, Technique
from sticker_uq.uncertainty.cluster import ClusterSettings

MODEL_STAGES = ("encode", "sample", "detect", "dil", "last_look", "close_ups", "photo", "novelty", "panel")
"""Those in which networks compute; the others cluster and measure."""
_NOT_PART_OF_THE_RESULT = (
    "device",  # its kind is, see hash_on
    "threads",
    "graphs",  # of the same kernels
    "weights",
    "panel",
    "monitors",
)
_GONE = {"escalation_budget_s": 0.0, "dil_every": 1}
"""Settings that are gone, with which policies made before keep their hash."""
_PATHS = ("weights", "panel")


class PerceptionSettings(DetectorSettings):
    """Settings of the image pipeline. A bad value raises pydantic's ``ValidationError``."""

    min_cluster_size: int = same_field(ClusterSettings, "min_cluster_size")
    min_samples: int = same_field(ClusterSettings, "min_samples")
    cluster_epsilon: float = same_field(ClusterSettings, "epsilon")
    dil: bool = Field(True, description="whether distinctive localization is computed")
    dil_technique: Technique = same_field(LocalizationSettings, "technique")
    decision_threshold: float = same_field(LocalizationSettings, "decision_threshold")
    dil_alpha: float = same_field(LocalizationSettings, "alpha")
    region_objectness: float = same_field(LocalizationSettings, "region_objectness")
    close_ups: bool = True
    """whether a pass without dropout looks once more, enlarged, at what may be a sticker, which encodes again for every 16
    objects; with the weights NAME_close_ups.safetensors beside NAME.safetensors, else with the detector's own"""
    novelty: bool = True
    """whether the novelty of image and objects is measured, and foreign objects are located, where a novelty network exists for
    the weights"""
    photo: bool = False
    """whether a network that has seen photographs gives a second opinion about every object, where a head for it,
    NAME_photo.safetensors, lies beside the weights"""
    last_look: bool = True
    """whether it is measured if a hand or a gripper is in front of the laptop, where NAME_front.safetensors lies beside the
    weights, and where patches of a sticker are that no box shows, where NAME_patches.safetensors does"""
    panel: str = ""
    """folder of `sticker-uq monitors fit`: monitors that score every object; empty: none"""
    monitors: str = Field("", pattern=r"^[a-z0-9_]*( *, *[a-z0-9_]+)*$")
    """names of those of the panel that have a vote, separated by commas; empty: all that were fitted"""

    @property
    def votes(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.monitors.split(",") if name.strip())

    @property
    def cluster(self) -> ClusterSettings:
        return ClusterSettings(
            min_cluster_size=self.min_cluster_size, min_samples=self.min_samples, epsilon=self.cluster_epsilon
        )

    @property
    def localization(self) -> LocalizationSettings:
        return LocalizationSettings(
            technique=self.dil_technique,
            decision_threshold=self.decision_threshold,
            alpha=self.dil_alpha,
            region_objectness=self.region_objectness,
        )

    def with_absolute_paths(self) -> PerceptionSettings:
        """The same settings with absolute paths, for a process in another folder."""
        files = {name: os.path.abspath(file) for name in _PATHS if (file := getattr(self, name))}
        return self.model_copy(update=files)

    def hash_on(self, device_kind: str) -> str:
        """Digest of all settings that change the SceneAssessment, SHA-256, hex; weights and panel have their own.

        ``device_kind``: "cpu" or "cuda", which round differently.
        """
        # policies made before these settings keep their hash
        unused = {name for name in ("photo", "last_look") if not getattr(self, name)}
        values = self.model_dump(exclude={*_NOT_PART_OF_THE_RESULT, *unused}) | {
            "device": device_kind,
            **_GONE,
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
