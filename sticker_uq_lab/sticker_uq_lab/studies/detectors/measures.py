# SPDX-License-Identifier: Apache-2.0
"""The measures that the detector study compares, and the tables of per-image results that have them, of this bench or others."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from sticker_uq.detection.names import MODEL_NAMES
from sticker_uq.evaluation.reporting.document import Table
from sticker_uq.io.reading import MIB, check_regular, show_value
from sticker_uq.scene import METRICS, InvalidInput

Profile = Literal["paper", "simula_rp"]
"""``paper``: the definitions of Lu et al., correctly; ``simula_rp``: as their published code computes them, for regression."""


@dataclass(frozen=True)
class Measure:
    """A column of results. ``short``: as the paper writes it; ``unit``: empty for a share."""

    name: str
    short: str
    higher_is_better: bool
    unit: str = ""


ACCURACY = Measure("map", "mAP", True)
_OF_METRICS = {name: Measure(name, metric.short, False, metric.unit) for name, metric in METRICS.items()}
_UQMS = ("variation_ratio", "shannon_entropy", "mutual_information", "total_variance", "predictive_surface")
UNCERTAINTY = tuple(_OF_METRICS[name] for name in _UQMS)
"""The paper's five uncertainty quantification metrics (UQMs)."""
RELATIVE = tuple(_OF_METRICS[metric.relative] for metric in METRICS.values() if metric.relative)
"""TV and PS divided by the area of the box, so that images of different sizes compare."""
ACCURACY_FLOOR = 0.3
"""Mean mAP on clean images below which a model sees too little for its certainty or robustness to mean anything: an attack cannot
disturb one that detects nothing."""
SCORES = (Measure("rs_map", "RS_mAP", True), Measure("rs_uqm", "RS_UQM", True))
"""Robustness scores (eq 14-16)."""
MEASURES = (ACCURACY, *_OF_METRICS.values(), *SCORES)
BY_NAME = {measure.name: measure for measure in MEASURES}

_ALIASES = {measure.short.lower(): measure.name for measure in MEASURES}
COLUMNS = {"image_name": "image", "dropout": "dropout_rate", **_ALIASES}
"""Other names of columns, in lower case."""
PAPER_MODELS = MODEL_NAMES[:6]
"""M1..M6 of the paper; a detector that came later has no number."""


def in_order(models: set[str]) -> list[str]:
    """``models`` in the order of the paper (M1..M6), others after them by name."""
    known = [name for name in PAPER_MODELS if name in models]
    return known + sorted(models.difference(PAPER_MODELS))


def label(model: str) -> str:
    """M1..M6 for the paper's models, any other name as it is."""
    return f"M{PAPER_MODELS.index(model) + 1}" if model in PAPER_MODELS else model


KEYS = ("dataset", "dropout_rate", "variant", "image", "model")
MOST_TABLE = 1024 * MIB
"""Bytes of a table of results."""
CLEAN = "clean"
"""The variant in which nothing was done to an image."""
_LOG = re.compile(r"logs_([\d.]+)_(\w+)-(?:org|adv_run_(\d+))\.csv")
"""A file of the replication package of Lu et al., below a folder of the model's name: rate, data set, number of the attack."""
_LOGGED = {
    "MAP": "map",
    **{f"UQ[{log}]": name for log, name in zip(("VR", "IE", "MI", "TR", "PS"), _UQMS, strict=True)},
}
_DEFAULTS = {"dataset": "all", "dropout_rate": np.nan, "variant": CLEAN}


def read_results(path: Path) -> pd.DataFrame:
    """The results in a .csv or .parquet file, columns by our names or others (mAP, image_name), one data set by default.

    A folder is one of the replication package of Lu et al.: MODEL/logs_RATE_DATASET-org.csv and adv_run_N, as many as there are.
    """
    if path.is_dir():
        return _read_logs(path)
    if check_regular(path) > MOST_TABLE:
        raise InvalidInput(f"{path}: expected a table of at most {MOST_TABLE} bytes")
    try:
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (ValueError, OSError) as error:  # pandas and pyarrow: no table
        raise InvalidInput(f"{path}: expected a .csv or .parquet table ({error})") from None
    table = table.rename(columns={name: COLUMNS.get(str(name).lower(), str(name)) for name in table.columns})
    for name in ("image", "model"):
        if name not in table:
            raise InvalidInput(f"{path}: has no column {name!r}, found {show_value(list(table.columns))}")
    if not measures_of(table):
        raise InvalidInput(f"{path}: has none of the columns {', '.join(BY_NAME)}")
    for name, value in _DEFAULTS.items():
        if name not in table:
            table[name] = value
    for measure in measures_of(table):
        values = pd.to_numeric(table[measure.name], errors="coerce")
        bad = values.isna() & table[measure.name].notna()
        if bad.any():
            raise InvalidInput(
                f"{path}: {measure.name} {table.loc[bad, measure.name].iloc[0]!r}: expected a number"
            )
        table[measure.name] = values.astype(float)
    twice = table.duplicated(list(KEYS), keep=False)
    if twice.any():
        row = table[twice].iloc[0]
        raise InvalidInput(f"{path}: image {row['image']!r} of model {row['model']!r} occurs more than once")
    return table


def _read_logs(folder: Path) -> pd.DataFrame:
    found = []
    for path in sorted(folder.glob("*/logs_*.csv")):
        named = _LOG.fullmatch(path.name)
        if named is None:
            continue
        if check_regular(path) > MOST_TABLE:
            raise InvalidInput(f"{path}: expected a table of at most {MOST_TABLE} bytes")
        try:
            log = pd.read_csv(path).rename(columns=_LOGGED)[["image_name", *_LOGGED.values()]]
        except (ValueError, KeyError) as error:
            raise InvalidInput(
                f"{path}: expected the columns image_name, {', '.join(_LOGGED)} ({error})"
            ) from None
        log = log[log["image_name"].str.contains("/", na=False)]  # some end with a line of means
        rate, dataset, run = named.groups()
        log["image"] = log.pop("image_name").str.rpartition("/")[2]
        variant = CLEAN if run is None else f"adv-{int(run) - 1:02d}"
        found.append(
            log.assign(dataset=dataset, dropout_rate=float(rate), variant=variant, model=path.parent.name)
        )
    if not found:
        raise InvalidInput(f"{folder}: expected MODEL/logs_RATE_DATASET-org.csv of the replication package")
    return pd.concat(found, ignore_index=True)


def measures_of(table: pd.DataFrame) -> list[Measure]:
    return [measure for measure in MEASURES if measure.name in table]


def conditions(table: pd.DataFrame) -> list[tuple[str, float, pd.DataFrame]]:
    """(data set, dropout rate, rows) of every condition of the results ``table``, rates rising; clean images only."""
    clean = table[table["variant"] == CLEAN]
    groups = clean.groupby(["dataset", "dropout_rate"], sort=True, dropna=False)
    return [(str(dataset), float(rate), rows) for (dataset, rate), rows in groups]


def pair_measures(rows: pd.DataFrame, measure: Measure, profile: Profile) -> tuple[pd.DataFrame, int]:
    """The ``measure``, a row per image, a column per model (order of the paper), and how many images were left out.

    Only images that every model was measured on. ``simula_rp`` leaves an image out of every measure when one model found nothing
    to cluster in it (PS not a number or -1), as published, except without dropout.
    """
    every = rows["image"].nunique()
    if profile == "simula_rp" and "predictive_surface" in rows and (rows["dropout_rate"] != 0).all():
        surface = rows["predictive_surface"]
        rows = rows[~rows["image"].isin(rows.loc[surface.isna() | (surface == -1), "image"])]
    table = rows.pivot(index="image", columns="model", values=measure.name)
    table = table[in_order(set(table.columns))].dropna()
    return table, every - len(table)


def figures_table(table: pd.DataFrame) -> Table:
    names = [str(n) for n in table.columns if not str(n).endswith(("low", "high"))]
    rows = [[_cell(record[n], *_ends(record, n)) for n in names] for record in table.to_dict("records")]
    return Table([heading(n) for n in names], rows)


def _ends(record: Mapping[Any, Any], name: str) -> tuple[float | None, float | None]:
    prefix = f"{name}_" if f"{name}_low" in record else "" if name == "rho" else None
    return (None, None) if prefix is None else (record.get(f"{prefix}low"), record.get(f"{prefix}high"))


def heading(name: str) -> str:
    if name not in BY_NAME:
        return name.replace("_", " ")
    about = BY_NAME[name]
    return f"{about.short}{f', {about.unit}' if about.unit else ''} {'↑' if about.higher_is_better else '↓'}"


def _cell(value: object, low: float | None, high: float | None) -> str:
    if not isinstance(value, float):
        return BY_NAME[value].short if isinstance(value, str) and value in BY_NAME else str(value)
    if math.isnan(value):
        return "–"
    known = low is not None and high is not None and not (math.isnan(low) or math.isnan(high))
    return f"{value:.3g} [{low:.2g}, {high:.2g}]" if known else f"{value:.3g}"
