"""The limits under which an object may be removed without asking, as one validated file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sticker_uq.scene import InvalidInput


class Policy(BaseModel):
    """What the cell regards as sure enough. Every number is a limit that still passes; NaN never passes.

    Entropies are in bits, TV and PS are divided by the area of the mean box so that cameras and distances compare.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    min_probability: float = Field(
        0.8, ge=0.34, le=1.0, description="Lowest mean probability of sticker at which a sticker is removed"
    )
    min_detection_rate: float = Field(
        0.7,
        ge=0.0,
        le=1.0,
        description="Lowest share of the passes that must see a sticker (K of T) to remove it",
    )
    max_variation_ratio: float = Field(
        0.2, ge=0.0, le=1.0, description="Highest variation ratio (VR, 0..2/3) of a sticker that is removed"
    )
    max_shannon_entropy: float = Field(
        0.9, ge=0.0, le=1.6, description="Highest Shannon entropy (SE, bits) of a sticker that is removed"
    )
    max_mutual_information: float = Field(
        0.3, ge=0.0, le=1.6, description="Highest mutual information (MI, bits) of a sticker that is removed"
    )
    max_relative_total_variance: float = Field(
        0.02,
        ge=0.0,
        le=100.0,
        description="Highest total variance over box area (TV/area) of a sticker that is removed",
    )
    max_relative_predictive_surface: float = Field(
        0.02,
        ge=0.0,
        le=100.0,
        description="Highest predictive surface over box area (PS/area) of a sticker that is removed",
    )
    max_logo_overlap: float = Field(
        0.1,
        ge=0.0,
        le=1.0,
        description="Highest share of the smaller box that a sticker and a possible logo may share",
    )
    min_logo_probability: float = Field(
        0.7, ge=0.34, le=1.0, description="Mean probability of logo from which a logo is kept without asking"
    )
    notable_probability: float = Field(
        0.2,
        ge=0.0,
        le=1.0,
        description="Mean probability from which an object counts as a possible sticker or logo",
    )
    min_unstable_probability: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="Mean probability of sticker from which an object seen in few passes prevents CLEAN",
    )
    min_unstable_detection_rate: float = Field(
        0.1, ge=0.0, le=1.0, description="Share of the passes from which such an object is asked about"
    )
    max_dil: float = Field(
        0.6,
        ge=0.0,
        le=1.0,
        description="Highest DiL of a scene in which anything is removed; 1 switches the limit off",
    )
    max_dil_clean: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="Highest DiL of a scene that counts as clean; 1 switches the limit off",
    )
    max_background_saliency: float = Field(
        0.0,
        ge=0.0,
        le=1e6,
        description="Mean saliency per pixel outside the boxes up to which a scene is clean whatever its DiL; 0: never",
    )

    @model_validator(mode="after")
    def _clean_is_stricter(self) -> Self:
        if self.max_dil_clean > self.max_dil:
            raise ValueError(
                f"max_dil_clean = {self.max_dil_clean} must not be above max_dil = {self.max_dil}"
            )
        return self

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of all limits, hex."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """The policy in a YAML file of ``name: value`` lines; what it leaves out has its default.

        Raises :class:`InvalidInput` naming the file and every unknown name and bad value.
        """
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InvalidInput(f"policy {path} cannot be read: {error}") from None
        if not isinstance(values, dict):
            raise InvalidInput(
                f"policy {path} must hold lines of the form name: value, got {type(values).__name__}"
            )
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = [
                _sentence(problem["loc"], problem["msg"], problem["input"]) for problem in error.errors()
            ]
            raise InvalidInput(f"policy {path}: {'; '.join(problems)}") from None


def _sentence(location: tuple[int | str, ...], message: str, value: object) -> str:
    name = ".".join(map(str, location))
    return f"{name} = {value!r}: {message}" if name else message.removeprefix("Value error, ")
