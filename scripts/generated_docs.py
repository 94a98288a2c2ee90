# SPDX-License-Identifier: Apache-2.0
"""The generated part of the documentation, which mkdocs asks for (``hooks`` in mkdocs.yml) and no file of docs/ repeats.

Pages: ``parameters.md`` and ``reference/commands.md``. In other pages a line ``<!-- generated: NAME ARGUMENT -->`` is replaced by
what :data:`PARTS` has of this name, and ``<!-- benchmarks/results/NAME.json TABLE -->`` by a table of that result file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import typer  # noqa: E402
from mkdocs.structure.files import File  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from pydantic.fields import FieldInfo  # noqa: E402
from pydantic_core import PydanticUndefined  # noqa: E402

from benchmarks.tables import filled  # noqa: E402
from sticker_uq.cell.node_settings import DetectorNodeSettings, ImageSourceSettings, RecorderSettings  # noqa: E402
from sticker_uq.cell.processes import CellOptions  # noqa: E402
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings  # noqa: E402
from sticker_uq.cli import PANELS, app  # noqa: E402
from sticker_uq.console.server import ConsoleSettings  # noqa: E402
from sticker_uq.gate import Policy  # noqa: E402
from sticker_uq.gate.assumptions import familiarity  # noqa: E402
from sticker_uq.gate.policy import policy_schema as sections  # noqa: E402
from sticker_uq.messages import BLOCK_ADVICE, BLOCK_REASONS, BlockReason  # noqa: E402
from sticker_uq.nodes.simulation.cell_sim import SimulationSettings  # noqa: E402

SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("Launch arguments", "Of `cell.launch.py`, and as options of `sticker-uq cell`.", CellOptions),
    ("`detector`", "Those of perception are options of `sticker-uq replay` too.", DetectorNodeSettings),
    ("`supervisor`", "They cannot be changed while a permit is open.", SupervisorNodeSettings),
    ("Policy file", "`config/policy.yaml`, or the file that the parameter `policy` names.", Policy),
    (
        "Policy file: `calibration.logo`, `calibration.sticker`",
        "One of two kinds, here `kind: isotonic`; `kind: temperature` has a `temperature` instead.",
        sections.Isotonic,
    ),
    ("Policy file: `risk`", "Written by `sticker-uq calibrate`.", sections.RiskScore),
    ("Policy file: `risk.terms`", "One entry for every signal.", sections.RiskTerm),
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


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are generated as a whole."""
    for path, content in (("parameters.md", parameters()), ("reference/commands.md", commands())):
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the generated parts of a page."""
    return filled(re.sub(r"<!-- generated: (\w+)(?: (\w+))? -->", _part, markdown))


def _part(mark: re.Match[str]) -> str:
    return PARTS[mark[1]](*([mark[2]] if mark[2] else []))


def parameters() -> str:
    """The reference of all parameters, from the models that validate them."""
    parts = [
        "# Parameters\n\nAn invalid value fails `configure` with the reason. Lifecycle nodes also have `autostart`. "
        "A name ends in its unit (`_s`, `_ms`, `_px`, `_mb`); `rate` is in Hz.\n"
    ]
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
    default = info.get_default(call_default_factory=True)
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    told = "" if default in (None, "") or default is PydanticUndefined else f"`{shown}`"
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
    parts = [
        "# Commands\n\nThe first column has what must be given; `sticker-uq COMMAND --help` lists every option with its "
        "default. [Offline tools](../howto/offline.md) has examples.\n\nInvalid input ends with exit status 2, an error of the "
        "system (disk, permission, missing package) with 1, Ctrl-C, within a second, with 130, each with one line on stderr; "
        "`STICKER_UQ_DEBUG=1` shows the traceback instead. A folder for results must be new or empty; where there is "
        "`--overwrite`, it replaces what an earlier run of the same command wrote there, and nothing else. "
        "`sticker-uq --install-completion` completes commands in the shell.\n"
    ]
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


def functions() -> str:
    """The functions that the pages of the papers link to, for mkdocstrings."""
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "papers").glob("*.md"))
    options = "    options: {show_source: true, show_root_full_path: true, members: false, heading_level: 2}"
    names = sorted(set(re.findall(r"functions\.md#([\w.]+)", text)))
    return "\n\n".join(f"::: {name}\n{options}" for name in names)


PARTS: dict[str, Callable[..., str]] = {
    "block_reasons": block_reasons,
    "functions": functions,
    "inputs": inputs,
    "messages": messages,
    "node_parameters": node_parameters,
    "outputs": outputs,
}
"""What a page may ask for."""
