# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq bundle``: one folder with all that a cell was qualified with."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sticker_uq.cell import releases
from sticker_uq.cell.bundle import Bundle, create_bundle
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli import option
from sticker_uq.cli.options import field_options, output_folder, settings_options, supervisor_parameters
from sticker_uq.io.setting_fields import validate
from sticker_uq.messages import printable
from sticker_uq.perception import PerceptionSettings

app = typer.Typer(no_args_is_help=True, add_completion=False)
NO_GUARANTEE = "no guarantee: a real arm needs allow_uncalibrated:=true"
_TOLD = ("from", "to", "person", "user", "host", "reason", "detail")
Folder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of `sticker-uq bundle create`.")]
Cell = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the cell: the link `active`, and `releases`, the log of its changes.",
    ),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the log.")]
Person = Annotated[str, typer.Option(metavar="NAME", help="Who, for the log; the name is not checked.")]


@app.callback()
def _about() -> None:
    """A bundle: weights, novelty network, panel, policy and parameters of a cell in one folder, with their hashes."""


@app.command()
@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def create(
    settings: PerceptionSettings,
    params: Path | None,
    policy: Path = option(..., "Policy file, as `sticker-uq calibrate` writes it."),
    out: Path = output_folder(..., "Folder of the bundle, new or empty.", empty=True),
) -> None:
    """Make a bundle of weights, policy, panel and the parameters in --params; refuses what does not fit together.

    The novelty network is the file NAME_novelty.safetensors beside the weights, or the packaged one for the packaged weights.
    """
    _show(create_bundle(out, settings, policy, supervisor_parameters(params)))


@app.command()
def show(folder: Folder) -> None:
    """Print what a bundle holds; checks every file against its hash."""
    _show(Bundle.load(folder))


@app.command()
@field_options("machine", PerceptionSettings, "device", "threads")
def verify(folder: Folder, machine: dict[str, Any]) -> None:
    """Assess a picture with a bundle on this machine: whether all of it fits together here."""
    bundle = Bundle.load(folder)
    scene = bundle.verify(validate(PerceptionSettings, machine))
    _show(bundle)
    typer.echo(f"fits together on this machine ({scene.device_kind}, {scene.precision})")


@app.command()
@field_options("machine", PerceptionSettings, "device", "threads")
def promote(
    machine: dict[str, Any],
    cell: Cell,
    candidate: Path = typer.Argument(..., metavar="CANDIDATE", help="Folder of `sticker-uq bundle create`."),
    reason: Reason = "",
    person: Person = "",
) -> None:
    """Verify a bundle on this machine and make it the active one of a cell: what FOLDER/active leads to."""
    bundle = Bundle.load(candidate)
    bundle.verify(validate(PerceptionSettings, machine))
    made = releases.promote(cell, bundle, person, reason)
    if bundle.comparison is not None:
        asked = -bundle.comparison.saved[0]
        typer.echo(
            f"compared with the bundle of before: {bundle.comparison.verdict}; it asks about {abs(asked):.0f} "
            f"{'more' if asked > 0 else 'fewer'} of 100 laptops; {bundle.manifest.guarantee or 'no guarantee'}"
        )
    _tell(made, cell)


@app.command()
@field_options("machine", PerceptionSettings, "device", "threads")
def rollback(machine: dict[str, Any], cell: Cell, reason: Reason = "", person: Person = "") -> None:
    """Verify the bundle that was active before and make it active again."""
    bundle = Bundle.load(releases.previous(cell).folder)
    bundle.verify(validate(PerceptionSettings, machine))
    _tell(releases.rollback(cell, bundle, person, reason), cell)


@app.command()
def history(cell: Cell) -> None:
    """Print who made which bundle active, when and why; exits with 1 when the log was changed or the link is another."""
    found = releases.history(cell)
    for entry in found.entries:
        told = {name: entry.data[name] for name in _TOLD if entry.data.get(name)}
        words = ", ".join(f"{name} {value}" for name, value in told.items())
        typer.echo(printable(f"{entry.number:>4} {entry.time[:19]}Z {entry.kind:<8} {words}"))
    for finding in found.findings:
        typer.echo(printable(f"NOT WHOLE  {finding}"))
    if not found.findings:
        active = [f"active {one.folder}, manifest {one.hash[:12]}" for one in found.standing[-1:]]
        last = [f"last entry {entry.hash}" for entry in found.entries[-1:]]
        typer.echo(printable("; ".join([*(active or ["no bundle is active"]), *last])))
    raise typer.Exit(1 if found.findings else 0)


def _tell(release: releases.ActiveBundle, cell: Path) -> None:
    typer.echo(f"{cell / releases.ACTIVE} leads to {release.folder}, manifest {release.hash[:12]}")
    typer.echo("a cell that runs goes on with the bundle that it was started from: restart it")


def _show(bundle: Bundle) -> None:
    manifest = bundle.manifest
    promise = manifest.guarantee or NO_GUARANTEE
    rows = {
        "bundle": bundle.folder,
        "made": f"{manifest.created} by sticker_uq {manifest.version} on {manifest.device}",
        "model": f"{manifest.model}, weights {manifest.model_hash[:12]}",
        "settings": f"{manifest.settings_hash[:12]}, T = {bundle.settings().passes}",
        "panel": manifest.panel_hash[:12] or "none",
        "policy": f"{manifest.policy_hash[:12]}, {promise}",
        "supervisor": ", ".join(f"{name} = {value}" for name, value in manifest.supervisor.items())
        or "defaults",
        "files": f"{len(manifest.files)}, as when it was made",
        **({"WARNING": bundle.warning} if bundle.warning else {}),
    }
    for name, value in rows.items():
        typer.echo(printable(f"{name:<11} {value}"))


def promise_of(bundle: Bundle) -> str:
    """What ``bundle`` guarantees, and its warning."""
    promise = bundle.manifest.guarantee or NO_GUARANTEE
    return f"{promise}.{f' WARNING: {bundle.warning}.' if bundle.warning else ''}"
