"""The tables of a DiL study as CSV files, one Markdown text and one page that works offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from jinja2 import Environment

from sticker_uq.io.files import atomic_write

Tables = Mapping[str, Mapping[str, pd.DataFrame]]
"""By the detector's name, by the table's title."""

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Distinctive localization on abnormal scenes</title>
<style>body{font:15px/1.5 system-ui;margin:2rem;color-scheme:light dark}table{border-collapse:collapse;margin:.5rem 0 2rem}
td,th{padding:.25rem .6rem;border-bottom:1px solid #8886;text-align:right;font-variant-numeric:tabular-nums}
td:first-child,th:first-child{text-align:left}div{overflow-x:auto}</style>
<h1>Distinctive localization on abnormal scenes</h1><p>Brackets are 95 % bootstrap intervals over scenes.</p>
{% for detector, tables in study.items() %}<h2>{{ detector }}</h2>
{% for title, table in tables.items() %}<h3>{{ title }}</h3><div><table><tr>{% for name in table.columns %}<th>{{ name }}</th>
{% endfor %}</tr>{% for row in table.itertuples(index=False) %}<tr>{% for value in row %}<td>{{ figure(value) }}</td>{% endfor %}
</tr>{% endfor %}</table></div>{% endfor %}{% endfor %}</html>
"""


def write_study(study: Tables, out: Path) -> list[Path]:
    """Write `study.md`, `study.html` and one CSV file per detector and table to the folder ``out``; the files written."""
    page = Environment(autoescape=True).from_string(_PAGE).render(study=study, figure=figure)
    texts = {"study.md": as_markdown(study), "study.html": page}
    for detector, tables in study.items():
        for title, table in tables.items():
            name = f"{detector}_{title}".lower().replace(" ", "-").replace(",", "").replace("/", "-")
            texts[f"{name}.csv"] = table.to_csv(index=False)
    for name, text in texts.items():
        with atomic_write(out / name, "w") as stream:
            stream.write(text)
    return [out / name for name in texts]


def as_markdown(study: Tables) -> str:
    """The tables as Markdown."""
    lines = []
    for detector, tables in study.items():
        lines.append(f"## {detector}\n")
        for title, table in tables.items():
            head = "| " + " | ".join(map(str, table.columns)) + " |"
            rule = "|" + "---|" * len(table.columns)
            body = ["| " + " | ".join(map(figure, row)) + " |" for row in table.itertuples(index=False)]
            lines += [f"### {title}\n", head, rule, *body, ""]
    return "\n".join(lines)


def figure(value: object) -> str:
    """A value as the tables show it: three decimals, a dash for what is not known."""
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.3g}" if 0 < abs(value) < 0.001 else f"{value:.3f}"
    return str(value).replace("_", " ")
