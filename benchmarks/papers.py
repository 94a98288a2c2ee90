# SPDX-License-Identifier: Apache-2.0
"""The values printed in the five papers beside those of this package, for the pages in ``docs/papers``.

``results/papers.json`` holds what the papers print, and the reason of every large difference. Our values come from where they
were reported first: the tables of studies in ``results``, the specification of the published example, the per-image results.

    python -m benchmarks.papers                           # every table
    python -m benchmarks.papers medical significance      # these
"""

import csv
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.result_files import argument_parser
from benchmarks.tables import without_commit
from sticker_uq.lab.robustness.frequencies import CoverageRow, coverage
from sticker_uq.lab.robustness.spec import preset
from sticker_uq.lab.studies.detectors.analysis import Analysis, analyse, best_models
from sticker_uq.lab.studies.detectors.measures import BY_NAME, COLUMNS, MODEL_NAMES, UNCERTAINTY, read_results

ROOT = Path(__file__).parents[1]
PER_IMAGE = ROOT / "test/lab/studies/detectors/published"
LARGE = 0.1
"""A difference of AUC-ROC above which a reason must be given."""
SETS = ("ambiguous", "adversarial", "corrupted", "invalid")
CASES = {
    "clean": ("clean", "clean"),
    "occlusion-pasted": ("unrealistic occlusion", None),
    "occlusion": ("realistic occlusion", "occlusion"),
    "unknown-object": ("out of distribution", "out of distribution"),
    "unknown-sticker": ("out of distribution", "out of distribution"),
    "patch": ("adversarial patch", "adversarial patch"),
}
"""Our abnormal cases, and the use case of Giloni et al. that each stands for: on COCO (1 to 5), on Superstore (6 to 9)."""
STUDIED = {
    "SSDLite": "The packaged SSDLite",
    "Faster R-CNN": "Faster R-CNN with a feature pyramid",
    "RetinaNet": "RetinaNet",
}
"""The detectors of results/dil-study.csv and the sections of their results; RetinaNet without patch and thresholds."""
SIGNALS = ("dil gradcam", "dil layercam", "unexplained objectness", "novelty")
_COCO = ("clean", "unrealistic occlusion", "realistic occlusion", "out of distribution", "adversarial patch")
Printed = dict[str, Any]


def read(file: Path) -> Printed:
    """The printed values by paper and table."""
    found: Printed = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(printed: Printed, name: str) -> str:
    """The table ``name`` in Markdown: one of TABLES."""
    return TABLES[name](printed)


def rows_of(study: str, section: str, *first: str) -> list[dict[str, str]]:
    """The rows of the first table of ``results/STUDY.csv`` of the ``section`` whose first columns are ``first``.

    The file has tables one after the other: a line "# SECTION", a header, rows, and an empty line. Raises LookupError when
    there is no such table.
    """
    text = without_commit((ROOT / "benchmarks" / "results" / f"{study}.csv").read_text(encoding="utf-8"))
    for block in text.split("\n\n"):
        title, *lines = block.strip().splitlines()
        header, *rows = csv.reader(lines)
        if title == f"# {section}" and header[: len(first)] == [*first]:
            return [dict(zip(header, row, strict=True)) for row in rows]
    raise LookupError(f"results/{study}.csv: no table of {first} of {section!r}")


def statistics(printed: Printed) -> str:
    """Friedman's test, pairwise tests and best models of Lu et al., recomputed from the published per-image results."""
    found = _analysis()
    friedman = _published("friedman").merge(found.friedman, on="measure")
    pairs = _published("wilcoxon").rename(columns={"Model_1": "first", "Model_2": "second"})
    pairs = pairs.merge(found.pairs, on=["measure", "first", "second"])
    sets = (
        pd.read_csv(PER_IMAGE / "best_sets.csv")
        .query("dataset == 'dalleimg' and dropout_rate == 0.2")
        .iloc[0]
    )
    best = found.best.set_index("dataset").loc["all"]
    rows = []
    for _, row in friedman.iterrows():
        own = pairs[pairs["measure"] == row["measure"]]
        short = BY_NAME[row["measure"]].short
        rows.append(
            (
                short,
                f"{row['Friedman_statistic']:.3f}",
                f"{row['statistic']:.3f}",
                f"{len(own)}",
                _largest(own["p_holm"] - own["p_value"]),
                _largest(own["rbc_y"] - own["rbc_value"]),
                str(sets[short]),
                str(best[row["measure"]]),
            )
        )
    return markdown(
        (
            "metric", "Friedman, published", "here", "pairs of models", "largest difference of an adjusted p",
            "of a rank-biserial correlation", "best models, published", "here",
        ),
        rows,
    )  # fmt: skip


def best(printed: Printed) -> str:
    """Table 3 of Lu et al., recomputed from the published best models of every rate."""
    rates = pd.read_csv(PER_IMAGE / "best_sets.csv")
    shorts = list(rates.columns[2:])
    tiers = [
        {"dataset": r["dataset"], "dropout_rate": r["dropout_rate"], "measure": COLUMNS[s.lower()], "model": m, "tier": 1}
        for _, r in rates.iterrows()
        for s in shorts
        for m in (MODEL_NAMES[int(name[1:]) - 1] for name in r[s].split("/"))
    ]  # fmt: skip
    ours = best_models(pd.DataFrame(tiers)).set_index("dataset")
    rows = []
    for dataset, cells in printed["lu"]["table_3"].items():
        here = [ours.loc[dataset, COLUMNS[s.lower()]] for s in shorts]
        rows.append((dataset, *(p if p == h else f"{p}, here {h}" for p, h in zip(cells, here, strict=True))))
    return markdown(("data set", *shorts), rows)


def correlations(printed: Printed) -> str:
    """Table 4 of Lu et al. beside the correlations of one data set and rate, recomputed."""
    found = _analysis().correlations.set_index(["model", "measure"])["rho"]
    rows = [
        (model, *(f"{number(p, 3)} ({number(found.get((model, m.name)), 3)})" for p, m in zip(cells, UNCERTAINTY, strict=True)))
        for model, cells in printed["lu"]["table_4"].items()
    ]  # fmt: skip
    return markdown(("model", *(measure.short for measure in UNCERTAINTY)), rows)


def ambiguity(printed: Printed) -> str:
    """Table I of Weiss et al. (MNIST) beside that of the digits."""
    columns = ("Top-1", "Top-2", "Top-Pair", "entropy, bits")
    ours = {row["crops"]: row for row in rows_of("monitors", "Results on handwritten digits", "crops")}
    rows = [
        (crops, *(f"{number(p)} / {ours[crops][c]}" for p, c in zip(cells, columns, strict=True)))
        for crops, cells in printed["weiss"]["table_1"].items()
    ]
    return markdown(("crops", *(f"{column}: paper / here" for column in columns)), rows)


def supervisors(printed: Printed) -> str:
    """Table II of Weiss et al. (MNIST) beside that of the digits, and the difference."""
    rows = [
        (
            monitor,
            *(
                f"{number(p)} / {number(h)}" + ("" if p is None or h is None else f" ({h - p:+.2f})")
                for p, h in cells
            ),
        )
        for monitor, cells in _areas(printed).items()
    ]
    return markdown(("monitor", *(f"{one}: paper / here (difference)" for one in SETS)), rows)


def reasons(printed: Printed) -> str:
    """Every difference above LARGE from Table II with its reason.

    Raises LookupError for a difference without a reason, and for a reason without a difference.
    """
    given = dict(printed["weiss"]["reasons"])
    rows = []
    for monitor, cells in _areas(printed).items():
        for one, (p, h) in zip(SETS, cells, strict=True):
            if p is None or h is None or round(abs(h - p), 3) <= LARGE:
                continue
            reason = given.pop(f"{monitor} {one}", None)
            if reason is None:
                raise LookupError(
                    f"papers.json: no reason for {monitor} on {one}, {p} in the paper, {h} here"
                )
            rows.append((monitor, one, f"{p:.2f}", f"{h:.2f}", reason))
    if given:
        raise LookupError(f"papers.json: reasons without a difference: {', '.join(given)}")
    return markdown(("monitor", "set", "paper", "here", "reason"), rows)


def scores(printed: Printed) -> str:
    """Mean DiL of Table 2 of Giloni et al. beside that of our cases."""
    paper = printed["giloni"]["table_2"]
    ours = {name: _by_case("dil-study", section, ("case",), "DiL") for name, section in STUDIED.items()}
    rows = []
    for case, (coco, superstore) in CASES.items():
        place = _COCO.index(coco)
        printed_values = [
            f"{number(paper[kind][place], 3)}, {number(_superstore(paper[f'{kind}, Superstore'], superstore), 3)}"
            for kind in ("one-stage", "two-stage")
        ]
        here = (ours[name].get(case, "not measured") for name in STUDIED)
        rows.append((case, coco, *printed_values, *here))
    names = (
        "our case",
        "use case",
        "paper, one-stage: COCO, Superstore",
        "paper, two-stage: COCO, Superstore",
    )
    return markdown((*names, *(f"here, {name}" for name in STUDIED)), rows)


def separation(printed: Printed) -> str:
    """Area under the ROC curve of clean scenes against each of our cases; the paper has no such figure."""
    cases = [case for case in CASES if case != "clean"]
    rows = []
    for model, section in STUDIED.items():
        for row in rows_of("dil-study", section, "signal"):
            if row["signal"] in SIGNALS:
                own = {re.sub("^patch-.*", "patch", case): area.split()[0] for case, area in row.items()}
                rows.append((model, row["signal"], *(own.get(case, "not measured") for case in cases)))
    return markdown(("detector", "signal", *cases), rows)


def gains(printed: Printed) -> str:
    """Gain of recall and change of precision by the dynamic threshold: Table 3 of Giloni et al. beside ours, in per cent."""
    paper = printed["giloni"]
    models = {name: section for name, section in STUDIED.items() if name != "RetinaNet"}
    ours = {
        name: {
            column: _by_case("dil-study", section, ("case", "rule"), column, rule="paper")
            for column in ("recall_gain", "precision_gain")
        }
        for name, section in models.items()
    }
    rows = []
    for case, (coco, superstore) in CASES.items():
        place = _COCO.index(coco)
        printed_values = [
            f"{_percent(paper[name]['COCO'][place])}, {_percent(_superstore(paper[name]['Superstore'], superstore))}"
            for name in ("table_3", "table_3_precision")
        ]
        here = [
            " / ".join(_percent(100 * float(ours[name][column][case])) for name in models)
            for column in ("recall_gain", "precision_gain")
        ]
        rows.append((case, coco, printed_values[0], here[0], printed_values[1], here[1]))
    both = " / ".join(models)
    return markdown(
        (
            "our case", "use case", "recall, paper: COCO, Superstore", f"recall, here: {both}",
            "precision, paper: COCO, Superstore", f"precision, here: {both}",
        ),
        rows,
    )  # fmt: skip


def probabilities(printed: Printed) -> str:
    """Tables I and II of Ullah et al., and the same figures of the packaged detector."""
    rows = [
        (name, "paper", *(f"{v:.4f}" for v in values))
        for name, values in printed["ullah"]["tables_1_2"].items()
    ]
    rows += [
        (f"SSDLite, {row['detector']}", "here", row["Brier score"], row["ECE"], row["accuracy"])
        for row in rows_of("quality", "Measured on rendered laptops", "detector")
        if row["calibration"] == "as is"
    ]
    return markdown(("classifier", "source", "Brier score", "ECE", "accuracy"), rows)


def medical(printed: Printed) -> str:
    """Boxes 5 and 7 and figure A1 of Wozniak et al.: the relation, computed with the specification of the package."""
    spec, distance = preset("medical-diagnosis"), printed["wozniak"]["box_7"]["distance"]
    published = printed["wozniak"]["figure_a1"]["changes"]
    rows = []
    for metric, (source, target) in printed["wozniak"]["box_5"].items():
        change, epsilon = round(abs(target - source), 3), spec.epsilon(metric, distance)
        rows.append(
            (metric, f"{source:.3f}", f"{target:.3f}", f"{published[metric]:.3f}", f"{change:.3f}", f"{epsilon:g}",
             "violated" if change > epsilon else "holds")
        )  # fmt: skip
    return markdown(
        (
            "metric",
            "source",
            "target",
            "change, published",
            "change, here",
            f"epsilon(d = {distance:g})",
            "relation",
        ),
        rows,
    )


def significance(printed: Printed) -> str:
    """The significance of the circumstances in figure A1 of Wozniak et al., computed with the specification of the package."""
    sheet, spec = printed["wozniak"]["figure_a1"], preset("medical-diagnosis")
    rows = [
        (
            c.name, f"{c.frequency:g}", f"{sheet['relative_frequency'][c.name]:g}",
            f"{c.exposure} x {c.likelihood} x {c.severity}", str(sheet["significance"][c.name]), str(c.significance),
        )
        for c in sorted(spec.circumstances, key=lambda c: -c.significance)
    ]  # fmt: skip
    return markdown(
        (
            "circumstance", "probability", "relative frequency in the source images", "exposure x likelihood x severity",
            "significance, published", "here",
        ),
        rows,
    )  # fmt: skip


def source_coverage(printed: Printed) -> str:
    """The coverage in figure A1 of Wozniak et al., computed from the published relative frequencies."""
    sheet = printed["wozniak"]["figure_a1"]
    found = coverage(
        [
            CoverageRow(
                circumstance=c.name, significance=c.significance, target=c.frequency, source=share, low=0, high=1, status="",
            )
            for c in preset("medical-diagnosis").circumstances
            for share in (sheet["relative_frequency"][c.name],)
        ]
    )  # fmt: skip
    here = {
        "missing circumstances": found.missing,
        "over- or under-represented": found.misrepresented,
        "covered": found.covered,
    }
    rows = [
        (name, f"{sheet['coverage'][name]} %", f"{100 * share:.1f} %".replace(".0 ", " "))
        for name, share in here.items()
    ]
    return markdown(("share of the circumstances", "published", "here"), rows)


TABLES: dict[str, Callable[[Printed], str]] = {
    function.__name__: function
    for function in (
        *(statistics, best, correlations),
        *(ambiguity, supervisors, reasons),
        *(scores, separation, gains),
        probabilities,
        *(medical, significance, source_coverage),
    )
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables that ``arguments`` name, by default those of the command line, or all."""
    parser = argument_parser(__doc__)
    parser.add_argument("table", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    wanted = parser.parse_args(arguments).table or list(TABLES)
    if unknown := [name for name in wanted if name not in TABLES]:
        parser.error(f"{', '.join(unknown)}: expected {', '.join(TABLES)}")
    printed = read(ROOT / "benchmarks" / "results" / "papers.json")
    for name in wanted:
        print(f"{name}\n\n{table(printed, name)}\n")


def _analysis() -> Analysis:
    return analyse(read_results(PER_IMAGE / "dalleimg_0.2.csv"), "simula_rp", resamples=0)


def _published(name: str) -> pd.DataFrame:
    found = pd.read_csv(PER_IMAGE / f"{name}_dalleimg_0.2.csv")
    return found.assign(measure=found["metric"].map(lambda short: COLUMNS[short.lower()]))


def _areas(printed: Printed) -> dict[str, list[tuple[float | None, float | None]]]:
    """AUC-ROC by monitor: of each of SETS the printed one and ours, without its spread."""
    ours = {row["monitor"]: row for row in rows_of("monitors", "Results on handwritten digits", "monitor")}

    def area(text: str) -> float | None:
        return None if text == "n/a" else float(text.split()[0])

    return {
        monitor: [(p, area(ours[monitor][one])) for one, p in zip(SETS, cells, strict=True)]
        for monitor, cells in printed["weiss"]["table_2"].items()
    }


def _by_case(study: str, section: str, first: tuple[str, ...], column: str, **wanted: str) -> dict[str, str]:
    """``column`` of a table by case; a patch made for one kind of model is the case "patch"."""
    return {
        re.sub("^patch-.*", "patch", row["case"]): row[column]
        for row in rows_of(study, section, *first)
        if all(row[name] == value for name, value in wanted.items())
    }


def _superstore(values: Sequence[float | None], case: str | None) -> float | None:
    """The value of a use case on Superstore; the second of the five places is empty there."""
    places = {"clean": 0, "occlusion": 2, "out of distribution": 3, "adversarial patch": 4}
    return None if case is None else values[places[case]]


def number(value: float | None, digits: int = 2) -> str:
    """``value`` with ``digits`` decimal places, n/a for None and NaN."""
    return "n/a" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:+.1f} %"


def _largest(differences: pd.Series) -> str:
    largest = float(differences.abs().max())
    return "< 1e-12" if largest < 1e-12 else f"{largest:.1e}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
