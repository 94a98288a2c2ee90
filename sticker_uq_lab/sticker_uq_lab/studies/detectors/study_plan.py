# SPDX-License-Identifier: Apache-2.0
"""Plan of a detector study: models, data sets, dropout rates, variants. One validated value, which decides the result."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from sticker_uq.detection.names import detector_names
from sticker_uq.detection.settings import DetectorSettings, ModelName
from sticker_uq.io.setting_fields import Frozen, same_field
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.attacks.settings import DagSettings

RATES = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
"""Dropout rates of the paper, and none."""
ADVERSARIAL = "adv-"
"""Prefix of variants with white-box attacks on the evaluated model."""
TRANSFER = "from "
"""Prefix of the variant that another model's gradient made; the published code attacks all models with the pictures of one."""
_MODEL = re.compile(
    r"^(?:(?P<label>[\w.-]+):)?(?P<name>\w+)(?:/(?P<site>in|out))?(?:=(?P<weights>[^@]+))?(?:@(?P<size>\d+))?$"
)


class ModelChoice(Frozen):
    """``label``: its name, by default its architecture; without ``weights``, the packaged ones."""

    label: str
    name: ModelName
    weights: str = ""
    dropout_site: Literal["in", "out"] = same_field(DetectorSettings, "dropout_site")
    min_size: int = same_field(DetectorSettings, "min_size")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The model from [LABEL:]MODEL[/in|/out][=WEIGHTS][@MIN_SIZE], weights by absolute path; InvalidInput otherwise."""
        found = _MODEL.match(text)
        names = detector_names()
        if found is None or found["name"] not in names:
            raise InvalidInput(
                f"model {text!r}: expected [LABEL:]MODEL[/in|/out][=WEIGHTS][@MIN_SIZE], MODEL one of {', '.join(names)}"
            )
        values = {
            "label": found["label"] or found["name"],
            "name": found["name"],
            "weights": str(Path(found["weights"]).absolute()) if found["weights"] else "",
        }
        values |= {"dropout_site": found["site"]} if found["site"] else {}
        return cls.model_validate(values | ({"min_size": found["size"]} if found["size"] else {}))


class StudyData(Frozen):
    """A COCO folder and its name."""

    name: str
    folder: Path

    @classmethod
    def parse(cls, text: str) -> Self:
        name, equals, folder = text.partition("=")
        path = Path(folder if equals else text).absolute()
        return cls(name=name if equals else path.name or "data", folder=path)


class StudySettings(Frozen):
    """Everything that decides the result. A bad value raises pydantic's ``ValidationError``."""

    models: tuple[ModelChoice, ...] = Field(min_length=1)
    datasets: tuple[StudyData, ...] = Field(min_length=1)
    rates: tuple[float, ...] = Field(RATES, min_length=1)
    passes: int = Field(DetectorSettings().passes, ge=2, le=200, description="stochastic passes per image")
    adversarial: int = Field(10, ge=0, le=100, description="attacked variants of each image")
    transfer: bool = Field(False, description="whether every model also looks at the attacks on the others")
    images: int = Field(0, ge=0, description="images of each data set; 0: all")
    score_floor: float = same_field(DetectorSettings, "score_floor")
    profile: Literal["paper", "simula_rp"] = "paper"
    """definitions of the measures: correct, or those of the published code"""
    attack: DagSettings = DagSettings()
    seed: int = same_field(DetectorSettings, "seed")
    device: str = same_field(DetectorSettings, "device")
    precision: Literal["float32", "bfloat16"] = same_field(DetectorSettings, "precision")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what, names in (
            ("models", [m.label for m in self.models]),
            ("data sets", [d.name for d in self.datasets]),
            ("rates", [f"{r:g}" for r in self.rates]),
        ):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two {what} are called {name!r}, expected every name once")
        if self.transfer and (not self.adversarial or len(self.models) < 2):
            raise ValueError("--transfer: expected attacks (--adversarial) and two or more models")
        for rate in self.rates:
            if not 0 <= rate <= 0.9:
                raise ValueError(f"dropout rate {rate:g}: expected 0 to 0.9")
        return self

    def detector(self, model: ModelChoice) -> DetectorSettings:
        """Settings of ``model`` without dropout."""
        return DetectorSettings(
            model=model.name,
            dropout_rate=0.0,
            **model.model_dump(include={"weights", "min_size", "dropout_site"}),
            **self.model_dump(include={"passes", "score_floor", "device", "precision", "seed"}),
        )

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(f"{ADVERSARIAL}{number:02d}" for number in range(self.adversarial))
