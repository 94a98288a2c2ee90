"""The plots of a study as SVG that stands alone and is readable on light and dark pages."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from sticker_uq.evaluation.reporting.quality_charts import COLOURS
from sticker_uq.lab.studies.detectors.measures import BY_NAME, in_order

_INK = "#7b8594"
_MARKS = ("o", "s", "^", "D", "v", "P")


def rate_curves(means: pd.DataFrame, dataset: str, measures: Sequence[str]) -> Markup:
    """Each measure over the dropout rate, one line per model, with the 95 % interval over the images as a band."""
    shown = [m for m in measures if (means["measure"] == m).any()]
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.7 * rows), layout="constrained")
    own = means[means["dataset"] == dataset]
    models = in_order(set(own["model"]))
    for place, measure in enumerate(shown, 1):
        axes = figure.add_subplot(rows, columns, place)
        for number, model in enumerate(models):
            line = own[(own["model"] == model) & (own["measure"] == measure)].sort_values("dropout_rate")
            colour = COLOURS[number % len(COLOURS)]
            x = line["dropout_rate"].to_numpy(float)
            axes.plot(
                x,
                line["mean"].to_numpy(float),
                color=colour,
                marker=_MARKS[number % len(_MARKS)],
                markersize=3.5,
                label=model,
            )
            axes.fill_between(
                x,
                line["low"].to_numpy(float),
                line["high"].to_numpy(float),
                color=colour,
                alpha=0.2,
                linewidth=0,
            )
        about = BY_NAME[measure]
        better = "higher" if about.higher_is_better else "lower"
        axes.set_title(
            f"{about.short}{f', {about.unit}' if about.unit else ''} ({better} is better)", fontsize=9
        )
        rates = sorted(set(own["dropout_rate"]))
        axes.set_xticks(rates[:: -(-len(rates) // 6)])
        axes.set_xlabel("dropout rate", fontsize=8)
        _plain(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_color(_INK)
    return _svg(figure)


def tier_map(tiers: pd.DataFrame, dataset: str) -> Markup:
    """Mean tier (1 = best) over the rates, models by measures: light is good."""
    own = tiers[tiers["dataset"] == dataset]
    table = own.pivot_table(index="model", columns="measure", values="tier", aggfunc="mean")
    table = table.loc[in_order(set(table.index)), [m for m in BY_NAME if m in table.columns]]
    return _heat(table, "{:.1f}", "viridis_r", 1.0, max(float(np.nanmax(table.to_numpy())), 2.0), "mean tier")


def correlation_map(correlations: pd.DataFrame, dataset: str) -> Markup:
    """Mean Spearman correlation of mAP with each uncertainty metric over the rates; an empty field is undefined."""
    own = correlations[correlations["dataset"] == dataset]
    table = own.pivot_table(index="model", columns="measure", values="rho", aggfunc="mean", dropna=False)
    table = table.loc[in_order(set(table.index)), [m for m in BY_NAME if m in table.columns]]
    return _heat(table, "{:.2f}", "RdBu", -1.0, 1.0, "Spearman's rho with mAP")


def transfer_map(transfer: pd.DataFrame, dataset: str) -> Markup:
    """mAP of the model in each column on the attacks on the model in each row; dark is broken."""
    own = transfer[transfer["dataset"] == dataset].set_index("attacked")
    table = own.drop(columns=["dataset", "dropout_rate"])
    return _heat(table, "{:.2f}", "viridis", 0.0, 1.0, "mAP: rows were attacked, columns look", wide=1.3)


def critical_differences(ranks: pd.DataFrame, dataset: str) -> Markup:
    """Mean ranks of the models (Demsar 2006), one line for each measure; a bar joins models that are not better than each other.

    "Better" is that of the tiers: significant after Holm's correction and of medium or large effect, at every rate.
    """
    own = ranks[ranks["dataset"] == dataset]
    measures = [m for m in BY_NAME if (own["measure"] == m).any()]
    models = in_order(set(own["model"]))
    figure = Figure(figsize=(8.4, 0.8 + 0.72 * len(measures)), layout="constrained")
    axes = figure.add_subplot()
    for row, measure in enumerate(measures):
        line = own[own["measure"] == measure].set_index("model")
        axes.axhline(row, color=_INK, linewidth=0.6, alpha=0.5)
        for number, model in enumerate(models):
            if model in line.index:
                axes.plot(
                    line.loc[model, "rank"],
                    row,
                    color=COLOURS[number % len(COLOURS)],
                    marker=_MARKS[number % len(_MARKS)],
                    markersize=8,
                    linestyle="",
                    label=model if row == 0 else None,
                )
        for step, (low, high) in enumerate(
            sorted({tuple(map(float, bar)) for bars in line["tied"] for bar in bars})
        ):
            axes.plot(
                [low, high], [row + 0.16 + 0.1 * step] * 2, color=_INK, linewidth=2.5, solid_capstyle="round"
            )
    axes.set_yticks(range(len(measures)), [BY_NAME[m].short for m in measures])
    axes.set_ylim(len(measures) - 0.4, -0.6)
    axes.set_xlim(0.8, len(models) + 0.2)
    axes.set_xlabel("mean rank over images and rates, 1 is best", fontsize=8)
    _plain(axes)
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_color(_INK)
    return _svg(figure)


def _heat(
    table: pd.DataFrame, form: str, colours: str, low: float, high: float, label: str, wide: float = 0.95
) -> Markup:
    values = table.to_numpy(float)
    figure = Figure(
        figsize=(2.4 + wide * values.shape[1], 1.1 + 0.42 * values.shape[0]), layout="constrained"
    )
    axes = figure.add_subplot()
    drawn = axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    axes.set_xticks(range(values.shape[1]), [_short(name) for name in table.columns], fontsize=8)
    axes.set_yticks(range(values.shape[0]), [str(model) for model in table.index], fontsize=8)
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            red, green, blue, _ = drawn.to_rgba(value)
            dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
            axes.text(
                column,
                row,
                form.format(value),
                ha="center",
                va="center",
                fontsize=8,
                color="white" if dark else "black",
            )
    axes.set_title(label, fontsize=9)
    _plain(axes)
    axes.grid(False)
    return _svg(figure)


def _short(name: object) -> str:
    """How a measure is written; a model's name in lines of at most a dozen letters where it allows."""
    text = str(name)
    if text in BY_NAME:
        return BY_NAME[text].short
    return "\n".join(textwrap.wrap(text.replace("_", "_ "), 14)).replace("_ ", "_")


def _plain(axes: matplotlib.axes.Axes) -> None:
    axes.grid(alpha=0.25)
    axes.tick_params(colors=_INK, labelsize=8)
    axes.title.set_color(_INK)
    axes.xaxis.label.set_color(_INK)
    axes.set_facecolor("none")
    for spine in axes.spines.values():
        spine.set_color(_INK)


def _svg(figure: Figure) -> Markup:
    figure.patch.set_alpha(0)
    stream = io.StringIO()
    # text stays text, and the same figures give the same file
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "study"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return Markup(text[text.index("<svg") :])
