# SPDX-License-Identifier: Apache-2.0
"""The charts of a study of detectors."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from sticker_uq.evaluation.reporting.chart_style import COLOURS, INK, MARKERS, legend_below, svg
from sticker_uq.lab.studies.detectors.measures import BY_NAME, in_order

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rate_curves(means: pd.DataFrame, dataset: str, measures: Sequence[str]) -> Markup:
    """Each measure over the dropout rate, a line per model, the 95 % interval over the images as a band."""
    own = means[means["dataset"] == dataset]
    shown = [m for m in measures if (means["measure"] == m).any()]
    models, rates = in_order(set(own["model"])), sorted(set(own["dropout_rate"]))
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)

    def draw(figure: Figure) -> None:
        for place, measure in enumerate(shown, 1):
            axes = figure.add_subplot(rows, columns, place)
            for number, model in enumerate(models):
                line = own[(own["model"] == model) & (own["measure"] == measure)].sort_values("dropout_rate")
                x, mean, low, high = (
                    line[name].to_numpy(float) for name in ("dropout_rate", "mean", "low", "high")
                )
                axes.plot(x, mean, ms=3.5, label=model, **_style(number))
                axes.fill_between(x, low, high, color=_style(number)["color"], alpha=0.2, lw=0)
            about = BY_NAME[measure]
            unit, better = (
                f", {about.unit}" if about.unit else "",
                "higher" if about.higher_is_better else "lower",
            )
            axes.set_title(f"{about.short}{unit} ({better} is better)")
            axes.set_xticks(rates[:: -(-len(rates) // 6)])
            axes.set_xlabel("dropout rate")
        legend_below(figure, figure.axes[0])

    return svg(draw, 3.6 * columns, 2.7 * rows, f"measures over the dropout rate on {dataset}")


def tier_map(tiers: pd.DataFrame, dataset: str) -> Markup:
    """Mean tier (1 = best) over the rates, models by measures: light is good."""
    table = _mean_table(tiers, dataset, "tier")
    worst = max(float(np.nanmax(table.to_numpy())), 2.0)
    return _heat_map(table, "{:.1f}", "viridis_r", (1.0, worst), "mean tier")


def correlation_map(correlations: pd.DataFrame, dataset: str) -> Markup:
    """Mean Spearman correlation of mAP with each uncertainty metric over the rates; empty: undefined."""
    table = _mean_table(correlations, dataset, "rho")
    return _heat_map(table, "{:.2f}", "RdBu", (-1.0, 1.0), "Spearman's rho with mAP")


def transfer_map(transfer: pd.DataFrame, dataset: str) -> Markup:
    """MAP of the model in each column on the attacks on the model in each row; dark is broken."""
    own = transfer[transfer["dataset"] == dataset].set_index("attacked")
    table = own.drop(columns=["dataset", "dropout_rate"])
    return _heat_map(
        table, "{:.2f}", "viridis", (0.0, 1.0), "mAP: rows were attacked, columns look", wide=1.3
    )


def critical_differences(ranks: pd.DataFrame, dataset: str) -> Markup:
    """Mean ranks of the models (Demsar 2006), a line per measure; a bar joins those not better than each
    other.

    "Better" is that of the tiers: significant after Holm's correction and of medium or large effect, at every rate.
    """
    own = ranks[ranks["dataset"] == dataset]
    measures = [m for m in BY_NAME if (own["measure"] == m).any()]
    models = in_order(set(own["model"]))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, measure in enumerate(measures):
            line = own[own["measure"] == measure].set_index("model")
            axes.axhline(row, color=INK, lw=0.6, alpha=0.5)
            for number, model in enumerate(models):
                if model in line.index:
                    axes.plot(
                        line.loc[model, "rank"],
                        row,
                        ms=8,
                        ls="",
                        label=None if row else model,
                        **_style(number),
                    )
            bars = sorted({tuple(map(float, bar)) for bars in line["tied"] for bar in bars})
            for step, bar in enumerate(bars):
                axes.plot(bar, [row + 0.16 + 0.1 * step] * 2, color=INK, lw=2.5, solid_capstyle="round")
        axes.set_yticks(range(len(measures)), [BY_NAME[m].short for m in measures])
        axes.set(xlim=(0.8, len(models) + 0.2), ylim=(len(measures) - 0.4, -0.6))
        axes.set_xlabel("mean rank over images and rates, 1 is best")
        legend_below(figure, axes)

    return svg(draw, 8.4, 0.8 + 0.72 * len(measures), f"mean ranks on {dataset}")


def _style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def _mean_table(rows: pd.DataFrame, dataset: str, values: str) -> pd.DataFrame:
    """Means over the rates, models by measures, both in the order of the paper."""
    own = rows[rows["dataset"] == dataset]
    table = own.pivot_table(index="model", columns="measure", values=values, aggfunc="mean", dropna=False)
    return table.loc[in_order(set(table.index)), [m for m in BY_NAME if m in table.columns]]


def _heat_map(
    table: pd.DataFrame, form: str, colours: str, limits: tuple[float, float], label: str, wide: float = 0.95
) -> Markup:
    values = table.to_numpy(float)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        drawn = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
        axes.set_xticks(range(values.shape[1]), [_short(name) for name in table.columns])
        axes.set_yticks(range(values.shape[0]), [str(model) for model in table.index])
        for (row, column), value in np.ndenumerate(values):
            if not np.isnan(value):
                red, green, blue, _ = drawn.to_rgba(value)
                ink = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "black"
                axes.text(column, row, form.format(value), ha="center", va="center", color=ink)
        axes.set_title(label)
        axes.grid(False)

    return svg(draw, 2.4 + wide * values.shape[1], 1.1 + 0.42 * values.shape[0], label)


def _short(name: object) -> str:
    """How a measure is written; a model's name in lines of at most a dozen letters where it allows."""
    text = str(name)
    if text in BY_NAME:
        return BY_NAME[text].short
    return "\n".join(textwrap.wrap(text.replace("_", "_ "), 14)).replace("_ ", "_")
