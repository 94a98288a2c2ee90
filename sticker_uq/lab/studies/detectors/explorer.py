# SPDX-License-Identifier: Apache-2.0
"""Pictures of the detector study worth looking at, with what every model makes of them: worst, least sure, most changed by an
attack.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from sticker_uq.lab.studies.detectors.measures import BY_NAME, in_order
from sticker_uq.lab.studies.detectors.report_pictures import Picture, Pictures
from sticker_uq.lab.studies.detectors.results import CLEAN
from sticker_uq.lab.studies.detectors.study_plan import ADVERSARIAL, PATCHED
from sticker_uq.lab.studies.detectors.study_run import Study
from sticker_uq.lab.studies.detectors.summaries import reference_rate
from sticker_uq.scene import ObjectClass

FAINT = 0.3
"""Objects with a lower score are not drawn until somebody asks for them."""
_MOST_STATIC = 60
_LEAST_CHANGE = 1e-9
_FIGURE_BYTES, _FRAME_BYTES = 900, 250
"""What a picture that is shown without a script takes on the page beside its pixels, and each of its boxes, at most."""
_FIGURES = (
    "map",
    "shannon_entropy",
    "mutual_information",
    "variation_ratio",
    "relative_total_variance",
    "relative_predictive_surface",
    "dil",
    "true_positives",
    "false_positives",
    "false_negatives",
)
_KEYS = ["dataset", "image", "model", "variant"]
_Unit = tuple[str, str, str, str]
"""Data set, image, model, variant."""


@dataclass(frozen=True)
class Shown:
    """A picture on the detector study's page without a script: ``why``, its ``caption`` and the ``boxes`` that the passes cluster
    into.
    """

    dataset: str
    model: str
    why: str
    caption: str
    picture: Picture
    boxes: list[list[float]]


@dataclass
class Explorer:
    """``pictures`` by number, each once; ``shown`` without a script; ``document``: JSON of all, for the script; ``rows``: the
    figures of ``document`` as a table; ``left_out``: how many images of the study have no picture here.
    """

    pictures: list[Picture] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    document: Markup = field(default_factory=lambda: Markup("null"))
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    left_out: int = 0


def explore(study: Study, scores: pd.DataFrame, folder: Path, budget: int) -> Explorer:
    """The detector study's pictures in ``folder``, as many as fit into ``budget`` bytes: first those that are shown without a
    script,
    then every image by how often it stands out, clean and as its first variants, then all other variants. ``scores``: of
    `robustness_scores`. Raises InvalidInput for data that is not there any more.
    """
    maker = _Maker(study, Pictures(study, folder), budget)
    ranking = _ranking(study, scores)
    shown = list(_static(study, ranking, maker))
    order = list(dict.fromkeys((r.dataset, image) for r in ranking for image in r.images))
    order = sorted(order, key=lambda key: min(r.place(key) for r in ranking))
    for first in (True, False):
        for unit in (unit for key in order for unit in maker.units(*key)):
            if maker.full:
                break
            if first != _repeated(unit[3]):
                maker.take(unit)
    return Explorer(
        pictures=list(maker.pictures.values()),
        shown=shown,
        document=Markup(maker.document()),  # is JSON without "<"
        rows=maker.rows(),
        left_out=len(order) - len(maker.images),
    )


def _repeated(variant: str) -> bool:
    """Whether ``variant`` is the second or a later one of its kind."""
    return variant.startswith((ADVERSARIAL, PATCHED)) and not variant.endswith("-00")


@dataclass(frozen=True)
class _Ranking:
    """The images of a data set, those first in which a model stands out: ``why``."""

    dataset: str
    model: str
    why: str
    images: list[str]

    def place(self, key: tuple[str, str]) -> int:
        return self.images.index(key[1]) if key[0] == self.dataset and key[1] in self.images else 10**9


def _ranking(study: Study, scores: pd.DataFrame) -> list[_Ranking]:
    rate = reference_rate(study)
    rows = study.images[(study.images["dropout_rate"] == rate) & (study.images["variant"] == CLEAN)]
    found = []
    for dataset in [one.name for one in study.settings.datasets]:
        for model in in_order({one.label for one in study.settings.models}):
            own = rows[(rows["dataset"] == dataset) & (rows["model"] == model)]
            kinds = {
                "lowest mAP": own.sort_values(["map", "image"]),
                "most uncertain": own.sort_values(["shannon_entropy", "image"], ascending=[False, True]),
            }
            if not scores.empty:
                here = scores[(scores["dataset"] == dataset) & (scores["model"] == model)]
                here = here[here["dropout_rate"] == rate]
                change = here.assign(change=(here["map_clean"] - here["map_adversarial"]).abs())
                kinds["most changed by the attack"] = change[change["change"] > _LEAST_CHANGE].sort_values(
                    ["change", "image"], ascending=[False, True]
                )
            found += [_Ranking(dataset, model, why, table["image"].tolist()) for why, table in kinds.items()]
    return found


def _static(study: Study, ranking: list[_Ranking], maker: _Maker) -> Iterator[Shown]:
    """Up to four pictures of each kind for every model and data set, fewer where there are many."""
    each = max(1, min(4, _MOST_STATIC // max(len(ranking), 1)))
    for one in ranking:
        attacked = "attack" in one.why
        for image in one.images[:each]:
            for variant in (CLEAN, f"{ADVERSARIAL}00")[: 2 if attacked else 1]:
                unit = (one.dataset, image, one.model, variant)
                picture = maker.take(unit)
                cell = maker.cell(unit, reference_rate(study))
                if picture is not None and cell is not None:
                    caption = f"{image}{'' if variant == CLEAN else ', attacked'}: {_words(cell)}"
                    boxes = [box for box in cell["b"] if box[1] >= FAINT]
                    maker.spend(_FIGURE_BYTES + _FRAME_BYTES * (len(boxes) + len(picture.truth)))
                    yield Shown(one.dataset, one.model, one.why, caption, picture, boxes)


def _words(cell: Mapping[str, Any]) -> str:
    value = dict(zip(_FIGURES, cell["f"], strict=True))
    told = [
        ("mAP", "map", ".2f", ""),
        ("SE", "shannon_entropy", ".2f", " bit"),
        ("TV/area", "relative_total_variance", ".3f", ""),
        ("DiL", "dil", ".2f", ""),
    ]
    known = [(word, value[name], form, unit) for word, name, form, unit in told if value[name] is not None]
    return ", ".join(f"{word} {number:{form}}{unit}" for word, number, form, unit in known)


class _Maker:
    """Collects pictures and what the models make of them until the budget is used."""

    def __init__(self, study: Study, pictures: Pictures, budget: int) -> None:
        self._study, self._source, self._budget = study, pictures, budget
        self.full = False
        self.pictures: dict[int, Picture] = {}
        self.images: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self._cells = study.images.groupby(_KEYS, sort=False).indices
        keys = [*_KEYS, "dropout_rate"]
        self._objects = study.objects.groupby(keys, sort=False).indices if len(study.objects) else {}
        self._attacks = {
            (row["dataset"], row["image"], row["attacked"], row["variant"]): row
            for row in study.attacks.to_dict("records")
        }

    def units(self, dataset: str, image: str) -> list[_Unit]:
        """What every model of the detector study saw of ``image``, in the order of the models, clean first."""
        models = in_order({one.label for one in self._study.settings.models})
        variants = dict.fromkeys(self._study.images["variant"])
        ordered = [CLEAN, *(name for name in variants if name != CLEAN)]
        units = [(dataset, image, model, variant) for variant in ordered for model in models]
        return [unit for unit in units if unit in self._cells]

    def take(self, unit: _Unit) -> Picture | None:
        """Put ``unit`` into the detector study's page if it fits into the budget; its picture, if it is in."""
        dataset, image, model, variant = unit
        known = self.images.get((dataset, image), {}).get(model, {})
        picture = self._source.find(dataset, image, model, variant)
        if variant in known or picture is None:
            return picture
        if variant != CLEAN and CLEAN not in known:
            return self.take((dataset, image, model, CLEAN)) and self.take(unit)
        entry: dict[str, Any] = {"p": picture.number, "r": self._rates(unit)}
        attack = self._attack(unit)
        if attack:
            entry["a"] = attack
        cost = len(_json(entry)) + len(model) + len(variant) + 60
        cost += 0 if picture.number in self.pictures else picture.cost
        if cost > self._budget:
            self.full = True
            return None
        self._budget -= cost
        self.pictures[picture.number] = picture
        self.images.setdefault((dataset, image), {}).setdefault(model, {})[variant] = entry
        return picture

    def spend(self, cost: int) -> None:
        """Take ``cost`` bytes from the budget of the detector study's pictures."""
        self._budget -= cost

    def cell(self, unit: _Unit, rate: float) -> Mapping[str, Any] | None:
        """The detector study's figures "f" and boxes "b" of ``unit`` at ``rate``; None where it was not looked at."""
        rates = list(self._study.settings.rates)
        return self._rates(unit)[rates.index(rate)]

    def _rates(self, unit: _Unit) -> list[dict[str, Any] | None]:
        rows = self._study.images.iloc[self._cells[unit]].set_index("dropout_rate")
        found: list[dict[str, Any] | None] = []
        for rate in self._study.settings.rates:
            if rate not in rows.index:
                found.append(None)
                continue
            figures = [_number(rows.loc[rate, name]) for name in _FIGURES]
            found.append({"f": figures, "b": self._boxes((*unit, rate))})
        return found

    def _boxes(self, key: tuple[str, str, str, str, float]) -> list[list[float]]:
        """Label, score, corners, and whether it is right, of each object; the surest last, which is drawn over the others."""
        if key not in self._objects:
            return []
        objects = self._study.objects.iloc[self._objects[key]].sort_values("score")
        columns = ["label", "score", "x1", "y1", "x2", "y2", "right"]
        return [
            [int(o[0]), round(o[1], 3), *(round(v, 1) for v in o[2:6]), int(o[6])]
            for o in objects[columns].itertuples(index=False)
        ]

    def _attack(self, unit: _Unit) -> dict[str, Any] | None:
        """Size and success of the attack behind ``unit``."""
        row = self._attacks.get(unit)
        if row is None:
            return None
        names = ("rms", "linf", "iterations", "targets", "fooled")
        return {name: _number(row[name]) for name in names}

    def document(self) -> str:
        """The detector study's pictures and figures for the script, as JSON that may stand in a page."""
        settings = self._study.settings
        truths = {
            one.number: {"w": one.width, "h": one.height, "t": one.truth} for one in self.pictures.values()
        }
        return _json(
            {
                "datasets": [one.name for one in settings.datasets],
                "models": in_order({one.label for one in settings.models}),
                "rates": settings.rates,
                "reference": settings.rates.index(reference_rate(self._study)),
                "figures": [_title(name) for name in _FIGURES],
                "names": list(_FIGURES),
                "labels": {int(label): label.name.lower() for label in ObjectClass},
                "faint": FAINT,
                "pictures": truths,
                "images": [
                    {"dataset": dataset, "name": image, "models": models}
                    for (dataset, image), models in self.images.items()
                ],
            }
        ).replace("<", "\\u003c")

    def rows(self) -> pd.DataFrame:
        """The detector study's figures in the page, one row per image, model, variant and rate."""
        places = [
            self._cells[dataset, image, model, variant]
            for (dataset, image), models in self.images.items()
            for model, variants in models.items()
            for variant in variants
        ]
        if not places:
            return pd.DataFrame()
        return self._study.images.iloc[np.concatenate(places)][[*_KEYS, "dropout_rate", *_FIGURES]]


def _title(name: str) -> str:
    words = {
        "dil": "DiL",
        "true_positives": "found",
        "false_positives": "wrong",
        "false_negatives": "missed",
    }
    if name in words:
        return words[name]
    about = BY_NAME[name]
    return f"{about.short}, {about.unit}" if about.unit else about.short


def _number(value: Any) -> float | int | None:
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else float(f"{number:.4g}")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
