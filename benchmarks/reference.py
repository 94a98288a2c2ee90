# SPDX-License-Identifier: Apache-2.0
"""The reference parts of the documentation, from what defines them: settings models, commands, messages, block reasons, modules.

``python -m benchmarks.tables --write`` puts them into the pages.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sticker_uq.cell.node_settings import DetectorNodeSettings, ImageSourceSettings, RecorderSettings
from sticker_uq.cell.processes import CellOptions
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.cli import PANELS, app
from sticker_uq.console.server import ConsoleSettings
from sticker_uq.gate import Policy
from sticker_uq.gate.policy import familiarity
from sticker_uq.gate.policy import policy_schema as sections
from sticker_uq.messages import BLOCK_ADVICE, BLOCK_REASONS, BlockReason
from sticker_uq_lab.datasets.importing.schemas import SCHEMAS
from sticker_uq_lab.nodes.cell_sim import SimulationSettings

ROOT = Path(__file__).parents[1]

SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("Launch arguments", "Of `cell.launch.py`, and as options of `sticker-uq cell`.", CellOptions),
    ("`detector`", "Those of perception are options of `sticker-uq replay` too.", DetectorNodeSettings),
    ("`supervisor`", "They cannot be changed while a permit is open.", SupervisorNodeSettings),
    (
        "Policy file",
        "`config/limits.yaml`, which names every limit, or the file that the parameter `policy` names.",
        Policy,
    ),
    (
        "Policy file: `calibration.logo`, `calibration.sticker`",
        "One of two kinds, here `kind: isotonic`; `kind: temperature` has a `temperature` instead.",
        sections.Isotonic,
    ),
    ("Policy file: `risk`", "Written by `sticker-uq calibrate`.", sections.RiskScore),
    ("Policy file: `risk.terms`", "One entry for every signal.", sections.RiskTerm),
    (
        "Policy file: `left`",
        "Written by `sticker-uq calibrate`. Default: what stays is judged by its likeliest object.",
        sections.LeftScore,
    ),
    ("Policy file: `left.terms`", "One entry for every signal.", sections.LeftTerm),
    ("Policy file: `panel`", "Default: any objection asks an operator.", sections.PanelRule),
    ("Policy file: `saliency`", "Default: `max_dil` and `max_dil_clean` apply.", sections.SaliencyLimit),
    (
        "Policy file: `familiarity`",
        "Written by `sticker-uq calibrate`. Default: every scene is judged.",
        familiarity.Familiarity,
    ),
    ("Policy file: `familiarity.usual`", "One entry for every signal of a scene.", familiarity.Usual),
    ("Policy file: `validity`", "Every given value must agree with the scene.", sections.Validity),
    ("`cell_sim`", "The simulated cell.", SimulationSettings),
    ("`image_source`", "", ImageSourceSettings),
    ("`console`", "", ConsoleSettings),
    ("`recorder`", "", RecorderSettings),
)


def parameters() -> str:
    """The reference of all parameters, from the models that validate them."""
    parts = []
    for title, text, model in SECTIONS:
        parts.append(f"## {title}\n\n{text}\n\n{_parameter_table(model)}\n")
    return "\n".join(parts)


def node_parameters(node: str) -> str:
    """The parameters of ``node``."""
    return next(_parameter_table(model) for title, _, model in SECTIONS if title == f"`{node}`")


def _parameter_table(model: type[BaseModel]) -> str:
    rows = [_parameter(name, info) for name, info in model.model_fields.items()]
    return "\n".join(["| name | default | range | meaning |", "|---|---|---|---|", *rows])


def _parameter(name: str, info: FieldInfo) -> str:
    if not info.description:
        raise LookupError(f"{name} has no description")
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    told = "" if default in (None, "") else f"`{shown}`"
    return f"| `{name}` | {told} | {_range(info)} | {info.description} |"


def _range(info: FieldInfo) -> str:
    if get_origin(info.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(info.annotation) if choice != "")
    signs = {"ge": "≥ {:g}", "gt": "> {:g}", "le": "≤ {:g}", "lt": "< {:g}", "pattern": "`{}`"}
    limits = {
        name: value
        for item in info.metadata
        for name in signs
        if (value := getattr(item, name, None)) is not None
    }
    return ", ".join(signs[name].format(value).replace("|", "\\|") for name, value in limits.items())


def commands() -> str:
    """The reference of the command line: a table for each panel of ``sticker-uq --help``."""
    group: Any = typer.main.get_command(app)
    parts = []
    for panel, names in PANELS.items():
        rows = [row for name in names for row in _commands(group.get_command(None, name).load(), name)]
        parts.append("\n".join([f"## {panel}\n", "| `sticker-uq` | what it does |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def _commands(command: Any, words: str) -> Iterator[str]:
    subcommands = getattr(command, "commands", {})
    if not subcommands or command.invoke_without_command:
        first, *_ = (command.help or "").split("\n\n")
        given = [words, *(_typed(one) for one in command.params if one.required)]
        yield f"| `{' '.join(given)}` | {' '.join(first.split()).replace('|', '&#124;')} |"
    for name, inner in subcommands.items():
        yield from _commands(inner, f"{words} {name}")


def _typed(parameter: Any) -> str:
    name = parameter.name.upper()
    return f"{parameter.opts[0]} {name}" if parameter.param_type_name == "option" else name


def block_reasons() -> str:
    """A row for every block reason: bit, code, words, and what to do."""
    rows = ["| reason | bit | what the cell says | what to do |", "|---|---|---|---|"]
    for code, words in BLOCK_REASONS.items():
        rows.append(f"| `{code}` | {int(BlockReason[code.upper()])} | {words} | {BLOCK_ADVICE[code]} |")
    return "\n".join(rows)


def promise() -> str:
    """What the packaged policy promises, and from how many images: the first rows of its proof."""
    file = ROOT / "benchmarks" / "results" / "rendered_proof.csv"
    head, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
    names = ("promised rate", "confidence", "laptops", "bad ones")
    wanted = [head, ["---"] * len(head), *(row for row in rows if row[0].startswith(names))]
    return "\n".join(f"| {' | '.join(row)} |" for row in wanted)


def page_words() -> str:
    """What the page's states, answers and buttons are called in each of its languages."""
    files = sorted((ROOT / "sticker_uq").glob("words_*.json"))
    pages = [json.loads(file.read_text(encoding="utf-8"))["page"] for file in files]
    pages.sort(key=lambda page: page["lang"] != "en")
    rows = [[page["language"] for page in pages], ["---"] * len(pages)]
    for part in ("states", "answers", "scenes", "layers"):
        rows += ([page[part][name] for page in pages] for name in pages[0][part])
    for name in ("hold", "release", "reset", "resetAlarm", "draw", "stopDrawing", "takeBack", "send"):
        rows.append([page[name] for page in pages])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def messages() -> str:
    """Every message, service and action of sticker_uq_msgs as its file defines it."""
    files = [
        file
        for kind in ("msg", "srv", "action")
        for file in sorted((ROOT / "sticker_uq_msgs" / kind).glob(f"*.{kind}"))
    ]
    return "\n\n".join(
        f"### {file.stem}\n\n```text\n{file.read_text(encoding='utf-8').strip()}\n```" for file in files
    )


def inputs(node: str) -> str:
    """The topics that ``node`` reads, and the services and actions that it calls, from docs/reference/ros.md."""
    return _interface(node, reads=True)


def outputs(node: str) -> str:
    """The topics that ``node`` publishes, and the services and actions that it serves."""
    return _interface(node, reads=False)


def _interface(node: str, reads: bool) -> str:
    rows = ["| name | type | what it is |", "|---|---|---|"]
    page = (ROOT / "docs" / "reference" / "ros.md").read_text(encoding="utf-8")
    for line in re.findall(r"^\| (`.*) \|$", page, re.M):
        name, kind, given, taken, *_, meaning = (cell.strip() for cell in line.split(" | "))
        if re.search(rf"\b{node}\b", taken if reads else given):
            rows.append(f"| {name} | {kind} | {meaning} |")
    return "\n".join(rows) if len(rows) > 2 else "None."


def compared() -> str:
    """The scripts of examples/compare: their lines of code, part by part, and the code."""
    rows = ["| lines | to load | to a picture | to a table | to a video |", "|---|---|---|---|---|"]
    code = []
    for file in sorted((ROOT / "examples" / "compare").glob("*.py")):
        _, title, script = file.read_text(encoding="utf-8").split("\n", 2)
        lines = [len(re.findall(r"^[^#\n]", part, re.M)) for part in re.split("^# %%.*", script, flags=re.M)]
        rows.append(f"| {title[2:]} | {' | '.join(map(str, lines))} |")
        code.append(f"\n`{file.name}`:\n\n```py\n{script.strip()}\n```")
    return "\n".join(rows + code)


def imported() -> str:
    """What each format of `dataset import` may say, from the schemas that read it."""
    rows = [
        "| `--format` | part | read | passed over | an error, as is any other key |",
        "|---|---|---|---|---|",
    ]
    for name, schemas in SCHEMAS.items():
        for part, one in schemas.items():
            cells = (" ".join(f"`{key}`" for key in keys) for keys in (one.types, one.harmless.split()))
            rows.append(f"| `{name}` | {part} | {' | '.join(cells)} | {one.refused} |")
    return "\n".join(rows)


def modules() -> str:
    """Every module of the two packages, with the beginning of its docstring."""
    rows = ["| module | content |", "|---|---|"]
    core, lab = ROOT / "sticker_uq", ROOT / "sticker_uq_lab"
    for below, file in (
        *((core, file) for file in sorted(core.rglob("*.py"))),
        *((lab, file) for file in sorted((lab / "sticker_uq_lab").rglob("*.py"))),
    ):
        words = (ast.get_docstring(ast.parse(file.read_bytes())) or "").split("\n\n")[0]
        shown = re.sub(r":[a-z]+:(?=`)", "", " ".join(words.split()))
        if shown:
            rows.append(f"| `{file.relative_to(below)}` | {shown} |")
    return "\n".join(rows)


PARTS: dict[str, Callable[..., str]] = {
    "block_reasons": block_reasons,
    "commands": commands,
    "compared": compared,
    "imported": imported,
    "inputs": inputs,
    "modules": modules,
    "node_parameters": node_parameters,
    "outputs": outputs,
    "page_words": page_words,
    "parameters": parameters,
    "promise": promise,
}
"""What a page may ask for."""
