"""Writes docs/parameters.md from the models that the nodes and the command line validate with.

python -m sticker_uq.cli.parameter_docs docs/parameters.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sticker_uq.cell.detector_settings import DetectorNodeSettings
from sticker_uq.cell.image_source_settings import ImageSourceSettings
from sticker_uq.cell.processes import CellOptions
from sticker_uq.cell.recorder_settings import RecorderSettings
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.console.server import ConsoleSettings
from sticker_uq.gate import Policy
from sticker_uq.gate.assumptions import familiarity
from sticker_uq.gate.policy import policy_schema as sections
from sticker_uq.io.files import atomic_write
from sticker_uq.nodes.simulation.cell_sim import SimulationSettings

SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("Launch arguments", "Of `cell.launch.py`, and as options of `sticker-uq cell`.", CellOptions),
    (
        "`detector`",
        "Node parameters; the perception ones are options of `sticker-uq replay` too.",
        DetectorNodeSettings,
    ),
    ("`supervisor`", "Node parameters. Nothing changes while a permit is out.", SupervisorNodeSettings),
    ("Policy file", "`config/policy.yaml`, or the file that the parameter `policy` names.", Policy),
    (
        "Policy file: `calibration.logo`, `calibration.sticker`",
        "One of two kinds, here `kind: isotonic`; `kind: temperature` has a `temperature` instead.",
        sections.Isotonic,
    ),
    ("Policy file: `risk`", "Written by `sticker-uq calibrate`.", sections.RiskScore),
    ("Policy file: `risk.terms`", "One entry for every signal.", sections.RiskTerm),
    (
        "Policy file: `panel`",
        "Left out: one objection is enough to ask a person.",
        sections.PanelRule,
    ),
    ("Policy file: `saliency`", "Left out: `max_dil` and `max_dil_clean` count.", sections.SaliencyLimit),
    (
        "Policy file: `familiarity`",
        "Written by `sticker-uq calibrate`. Left out: every scene is judged.",
        familiarity.Familiarity,
    ),
    ("Policy file: `familiarity.usual`", "One entry for every signal of a scene.", familiarity.Usual),
    ("Policy file: `validity`", "Whatever is given must agree with the scene.", sections.Validity),
    ("`cell_sim`", "Node parameters of the simulated cell.", SimulationSettings),
    ("`image_source`", "Node parameters.", ImageSourceSettings),
    ("`console`", "Node parameters.", ConsoleSettings),
    ("`recorder`", "Node parameters.", RecorderSettings),
)


def parameter_reference() -> str:
    """The whole reference as Markdown."""
    parts = [
        "# Parameters\n\nMade by `python -m sticker_uq.cli.parameter_docs docs/parameters.md` from the models that validate "
        "them; a bad value stops `configure` with the reason. Lifecycle nodes also know `autostart`.\n"
    ]
    for title, text, model in SECTIONS:
        rows = [_row(name, info) for name, info in model.model_fields.items()]
        parts.append(
            "\n".join(
                [
                    f"## {title}\n",
                    f"{text}\n",
                    "| name | default | range | meaning |",
                    "|---|---|---|---|",
                    *rows,
                    "",
                ]
            )
        )
    return "\n".join(parts)


def _row(name: str, info: FieldInfo) -> str:
    default = info.get_default(call_default_factory=True)
    shown = (
        ""
        if default in (None, "") or default is PydanticUndefined
        else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    )
    return f"| `{name}` | {shown} | {_range(info)} | {info.description} |"


def _range(info: FieldInfo) -> str:
    if get_origin(info.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(info.annotation) if choice != "")
    limits: dict[str, Any] = {}
    for item in info.metadata:
        for name in ("ge", "gt", "le", "lt", "pattern"):
            if getattr(item, name, None) is not None:
                limits[name] = getattr(item, name)
    signs = {"ge": "≥ ", "gt": "> ", "le": "≤ ", "lt": "< "}
    return ", ".join(
        f"{signs[k]}{v:g}" if k in signs else f"`{v}`".replace("|", "\\|") for k, v in limits.items()
    )


if __name__ == "__main__":
    with atomic_write(Path(sys.argv[1]), "w") as file:
        file.write(parameter_reference())
