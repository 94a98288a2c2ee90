# SPDX-License-Identifier: Apache-2.0
"""The values printed in the five papers beside those of this package, for the pages in ``docs/papers``.

``results/papers.json`` holds what the papers print, and the reason of every large difference. Our values come from the tables of
studies in ``results`` (``papers_S001.csv`` and so on: of --run), the specification of the published example, the published
per-image results.

    python -m benchmarks.papers S004                      # every table of a paper
    python -m benchmarks.papers medical significance      # these
    python -m benchmarks.papers S001 --run                # compute "here" anew, and keep it
    python -m benchmarks.papers S002 --plots out/plots    # with what the paper plots
"""

import csv
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import papers_run
from benchmarks.papers_robustness import aberration, medical, significance, source_coverage
from benchmarks.papers_statistics import best, correlations, guideline, number, statistics
from benchmarks.result_files import argument_parser
from benchmarks.tables import markdown, without_commit

ROOT = Path(__file__).parents[1]
LARGE = 0.1  # a difference of AUC-ROC above which a reason must be given
DIGITS = {
    "digits": ("S001", "digits", "monitors", "Results on handwritten digits"),
    "digits-paper": ("S001", "digits-paper", "", ""),
}
"""The runs of S001: autoencoders trained with swapped labels too, and as the paper does."""
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
    "SSDLite": ("S002", "cases", "dil-study", "The packaged SSDLite"),
    "Faster R-CNN of 0.2": ("", "", "dil-study", "Faster R-CNN with a feature pyramid"),
    "RetinaNet of 0.2": ("", "", "dil-study", "RetinaNet"),
}
"""The detectors and where their results are, as :func:`newest` wants it; RetinaNet without patch and thresholds."""
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

    The file has tables one after the other: a line "# SECTION" or "# SECTION: TITLE", a header, rows, an empty line. Raises
    LookupError when there is no such table.
    """
    text = without_commit((ROOT / "benchmarks" / "results" / f"{study}.csv").read_text(encoding="utf-8"))
    for block in text.split("\n\n"):
        title, *lines = block.strip().splitlines()
        header, *rows = csv.reader(lines)
        if f"{title}:".startswith(f"# {section}:") and header[: len(first)] == [*first]:
            return [dict(zip(header, row, strict=True)) for row in rows]
    raise LookupError(f"results/{study}.csv: no table of {first} of {section!r}")


def studied() -> dict[str, tuple[str, str, str, str]]:
    """STUDIED by the name that a column has: without a --run of its own SSDLite is that of 0.2, too."""
    ours = {name: where for name, where in STUDIED.items() if name != "SSDLite"}
    run = (ROOT / "benchmarks" / "results" / "papers_S002.csv").is_file()
    return {"SSDLite" if run else "SSDLite of 0.2": STUDIED["SSDLite"], **ours}


def newest(paper: str, name: str, file: str, section: str, *first: str) -> list[dict[str, str]]:
    """:func:`rows_of` of the study ``name`` in the last --run of ``paper``, else of ``section`` in the older ``file``, if any."""
    if paper and (ROOT / "benchmarks" / "results" / f"papers_{paper}.csv").is_file():
        with suppress(LookupError):
            return rows_of(f"papers_{paper}", name, *first)
    return rows_of(file, section, *first) if file else []


def ambiguity(printed: Printed) -> str:
    """Table I of Weiss et al. (MNIST) beside that of the digits, autoencoders trained with swapped labels and as in the paper."""
    columns = ("Top-1", "Top-2", "Top-Pair", "entropy, bits")
    ours = [{row["crops"]: row for row in newest(*where, "crops")} for where in DIGITS.values()]
    rows = [
        (
            crops,
            *(
                " / ".join([number(p), *(one[crops][c] if one else "not run" for one in ours)])
                for p, c in zip(cells, columns, strict=True)
            ),
        )
        for crops, cells in printed["weiss"]["table_1"].items()
    ]
    return markdown(
        ("crops", *(f"{column}: paper / here / here, paper's training" for column in columns)), rows
    )


def supervisors(printed: Printed) -> str:
    """Table II of Weiss et al. (MNIST) beside that of the digits, and the difference."""
    return _supervisors(printed, "digits")


def supervisors_as_in_paper(printed: Printed) -> str:
    """The same, with autoencoders trained as in the paper: no swapped labels."""
    return _supervisors(printed, "digits-paper")


def _supervisors(printed: Printed, name: str) -> str:
    if not newest(*DIGITS[name], "monitor"):
        return "Not run: `python -m benchmarks.papers S001 --run` measures it."
    rows = [
        (
            monitor,
            *(
                f"{number(p)} / {number(h)}" + ("" if p is None or h is None else f" ({h - p:+.2f})")
                for p, h in cells
            ),
        )
        for monitor, cells in areas(printed, name).items()
    ]
    return markdown(("monitor", *(f"{one}: paper / here (difference)" for one in SETS)), rows)


def reasons(printed: Printed) -> str:
    """Every difference of more than 0.1 from Table II with its reason.

    Raises LookupError for a difference without a reason, and for a reason without a difference.
    """
    given = dict(printed["weiss"]["reasons"])
    rows = []
    for monitor, cells in areas(printed).items():
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
    ours = {name: by_case(where, ("case",), "DiL") for name, where in studied().items()}
    rows = []
    for case, (coco, superstore) in CASES.items():
        place = _COCO.index(coco)
        printed_values = [
            f"{number(paper[kind][place], 3)}, {number(_superstore(paper[f'{kind}, Superstore'], superstore), 3)}"
            for kind in ("one-stage", "two-stage")
        ]
        here = (ours[name].get(case, "not measured") for name in ours)
        rows.append((case, coco, *printed_values, *here))
    names = (
        "our case",
        "use case",
        "paper, one-stage: COCO, Superstore",
        "paper, two-stage: COCO, Superstore",
    )
    return markdown((*names, *(f"here, {name}" for name in ours)), rows)


def separation(printed: Printed) -> str:
    """Area under the ROC curve of clean scenes against each of our cases; the paper has no such figure."""
    cases = [case for case in CASES if case != "clean"]
    rows = []
    for model, where in studied().items():
        for row in newest(*where, "signal"):
            if row["signal"] in SIGNALS:
                own = {re.sub("^patch-.*", "patch", case): area.split()[0] for case, area in row.items()}
                rows.append((model, row["signal"], *(own.get(case, "not measured") for case in cases)))
    return markdown(("detector", "signal", *cases), rows)


def missed(printed: Printed) -> str:
    """Area under the ROC curve of scenes with a missed sticker, over all cases of SSDLite: DiL beside passes, an ensemble of
    three and Bayes-OD. Figure 4 of Giloni et al. shows examples.
    """
    shown = {row["signal"]: row["all cases"] for row in newest(*STUDIED["SSDLite"], "signal", "all cases")}
    passes = {name: shown.get(f"ensemble {name}", "") for name in shown if f"ensemble {name}" in shown}
    others = [
        (name, area, "")
        for name, area in shown.items()
        if name.startswith(("dil ", "unexplained", "novelty", "bayes-od"))
    ]
    rows = [*others, *((name, shown[name], ensemble) for name, ensemble in passes.items())]
    return markdown(("signal", "of one pass, or of 20 passes", "of the ensemble of three"), rows)


def gains(printed: Printed) -> str:
    """Gain of recall and change of precision by the dynamic threshold: Table 3 of Giloni et al. beside ours, in per cent."""
    paper = printed["giloni"]
    models = {name: where for name, where in studied().items() if "RetinaNet" not in name}
    ours = {
        name: {
            column: by_case(where, ("case", "rule"), column, rule="paper")
            for column in ("recall_gain", "precision_gain")
        }
        for name, where in models.items()
    }
    rows = []
    for case, (coco, superstore) in CASES.items():
        place = _COCO.index(coco)
        printed_values = [
            f"{_percent(paper[name]['COCO'][place])}, {_percent(_superstore(paper[name]['Superstore'], superstore))}"
            for name in ("table_3", "table_3_precision")
        ]
        here = [
            " / ".join(_gain(ours[name][column].get(case)) for name in models)
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
    older = ("quality", "Measured on rendered laptops")
    rows += [
        (f"SSDLite, {row['detector']}", "here", row["Brier score"], row["ECE"], row["accuracy"])
        for row in newest("S003", "quality", "", "", "class") or rows_of(*older, "detector")
        if row.get("calibration", "as is") == "as is"
    ]
    return markdown(("classifier", "source", "Brier score", "ECE", "accuracy"), rows)


TABLES: dict[str, Callable[[Printed], str]] = {
    function.__name__: function
    for function in (
        *(statistics, best, correlations, guideline),
        *(ambiguity, supervisors, reasons, supervisors_as_in_paper),
        *(scores, separation, missed, gains),
        probabilities,
        *(medical, significance, source_coverage, aberration),
    )
}
PAPERS = {
    "S000": ("statistics", "best", "correlations", "guideline"),
    "S001": ("ambiguity", "supervisors", "reasons", "supervisors_as_in_paper"),
    "S002": ("scores", "separation", "missed", "gains"),
    "S003": ("probabilities",),
    "S004": ("medical", "significance", "source_coverage", "aberration"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables that ``arguments`` name, by default those of the command line, or all; with --run after computing anew."""
    parser = argument_parser(__doc__)
    parser.add_argument("table", nargs="*", metavar="PAPER|TABLE", help=", ".join((*PAPERS, *TABLES)))
    parser.add_argument(
        "--run", action="store_true", help="compute the values of the PAPER anew and keep them"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/papers"), help="folder of --run; it resumes there"
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="also draw what a PAPER plots, as SVG")
    given = parser.parse_args(arguments)
    from benchmarks import papers_plots  # which needs this module

    if unknown := [name for name in given.table if name not in {*PAPERS, *TABLES}]:
        parser.error(f"{', '.join(unknown)}: expected {', '.join((*PAPERS, *TABLES))}")
    if given.run:
        if not given.table or not set(given.table) <= set(PAPERS):
            parser.error(f"--run: expected one or more of {', '.join(PAPERS)}")
        for paper in given.table:
            papers_run.run(paper, given.out / paper)
    printed = read(ROOT / "benchmarks" / "results" / "papers.json")
    for name in given.table or PAPERS:
        if name in PAPERS:
            print(f"# {name}{papers_run.made(name)}\n")
        if given.plots and (file := papers_plots.plot(printed, name, given.plots)):
            print(f"plot in {file}\n")
        for one in PAPERS.get(name, (name,)):
            says = " ".join(str(TABLES[one].__doc__).split("\n\n")[0].split())
            print(f"{one}: {says}\n\n{table(printed, one)}\n")


def areas(printed: Printed, name: str = "digits") -> dict[str, list[tuple[float | None, float | None]]]:
    """AUC-ROC by monitor: of each of SETS the printed one and ours, without its spread."""
    ours = {row["monitor"]: row for row in newest(*DIGITS[name], "monitor")}

    def area(text: str) -> float | None:
        return None if text == "n/a" else float(text.split()[0])

    return {
        monitor: [(p, area(ours[monitor][one])) for one, p in zip(SETS, cells, strict=True)]
        for monitor, cells in printed["weiss"]["table_2"].items()
    }


def by_case(
    where: tuple[str, str, str, str], first: tuple[str, ...], column: str, **wanted: str
) -> dict[str, str]:
    """``column`` of a table by case; a patch made for one kind of model is the case "patch"."""
    return {
        re.sub("^patch-.*", "patch", row["case"]): row[column]
        for row in newest(*where, *first)
        if all(row[name] == value for name, value in wanted.items())
    }


def _superstore(values: Sequence[float | None], case: str | None) -> float | None:
    """The value of a use case on Superstore; the second of the five places is empty there."""
    places = {"clean": 0, "occlusion": 2, "out of distribution": 3, "adversarial patch": 4}
    return None if case is None else values[places[case]]


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:+.1f} %"


def _gain(share: str | None) -> str:
    return "not measured" if share is None else _percent(100 * float(share))


if __name__ == "__main__":
    main()
