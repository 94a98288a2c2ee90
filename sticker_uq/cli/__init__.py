# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq``: the command line, one file per command; other packages, as sticker_uq_lab, add theirs as entry points.

A command's module is imported only when that command runs, so ``sticker-uq --help`` is quick and needs neither torch nor
ROS. Errors end in one line, those of a file with several faults in one line each: invalid input with exit status 2, a system
error (disk, permission, missing package) with 1, Ctrl-C with 130. ``STICKER_UQ_DEBUG=1`` shows the traceback instead.
"""

import contextlib
import difflib
import errno
import functools
import importlib
import io
import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sticker_uq import __version__
from sticker_uq.imports import import_torchvision_without_compiler
from sticker_uq.io.share import INSTALL_LAB, LAB
from sticker_uq.io.stopping import INTERRUPTED, describe_interruption, end_on_interrupt, leave
from sticker_uq.messages import printable
from sticker_uq.scene import DeviceFailed, InvalidFile, InvalidInput

PANELS = {
    "Run a cell": {
        "demo": "Run hard laptops through a simulated cell, with its gate and without.",
        "cell": "Run the nodes of the cell as processes until Ctrl-C.",
        "status": "Print a running cell's gate, why it is closed, and its diagnostics.",
        "doctor": "Check this machine, with advice on each finding.",
        "audit": "Check or show the audit log of a supervisor.",
    },
    "Assess images": {
        "replay": "Assess and judge every image of a bag, a folder or a video, without ROS.",
        "evaluate": "Measure the detection accuracy of a detector on a COCO folder.",
        "quality": "Measure how well the probabilities of detectors are calibrated.",
        "robustness": "Assess how robust a detector or a cell with its gate is in given circumstances.",
    },
    "Make data, models and policies": {
        "dataset": "Render pictures of laptops with stickers, with COCO annotations.",
        "qualify": "Go from labelled images to a bundle, and say whether it is ready, and why.",
        "improve": "Go from operators' answers to a candidate bundle, compared with the active one.",
        "train": "Train a detector on a COCO folder.",
        "ask": "Ask yes or no about what could be released, in place of labels for calibrate.",
        "calibrate": "Calibrate a policy with a statistical guarantee on labelled images.",
        "bundle": "Put weights, policy and parameters into one folder, check it, make it active.",
        "monitors": "Study and fit misclassification monitors of single objects.",
        "dil": "Study distinctive localization (DiL), and train novelty detection.",
    },
    "Compare models": {
        "study": "Compare accuracy, uncertainty and adversarial robustness of detectors.",
        "select": "Select a model by the results of a study.",
    },
}
"""The commands of this package and of sticker_uq_lab with their help, by what a person does with them."""
SETTINGS = "Settings"
"""Title of the options that are the parameters of a node."""
_OFTEN = (
    "out", "alpha", "beta", "model", "weights", "passes", "device", "namespace", "console", "bag", "policy",
    "image_topic", "min_score", "bundle", "source", "sim", "record", "audit", "allow_uncalibrated",
    "overwrite", "resume", "verify", "report",
)  # fmt: skip
_ALL = "--help-all"
_SCREEN = 39
"""Lines of the help of a command, unless all of it is wanted; the next prompt needs one, too."""
COMMANDS = {name: panel for panel, commands in PANELS.items() for name in commands}
OWN = ("cell", "status", "doctor", "audit", "replay", "evaluate", "quality", "ask", "calibrate", "bundle")
"""The commands of this package; the others of ``COMMANDS`` are those of the lab."""
ENTRY_POINT_GROUP = "sticker_uq.commands"
"""An entry point of this group, named like the command, refers to a module with ``command`` or ``app``, as a module here has."""


def option(default: Any, help_text: str, *names: str, **more: Any) -> Any:
    """Required with the default ``...``; ``more``: as of :func:`typer.Option`."""
    return typer.Option(default, *names, help=help_text, **more)


@functools.cache
def installed_commands() -> dict[str, str]:
    """The module of every command that can be run: own ones, those of the lab where it is installed, others by their names.

    No command of this package can be replaced by a registered one.
    """
    found = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    found |= {name: f"{__name__}.{name}" for name in OWN}
    return {name: found[name] for name in (*COMMANDS, *sorted(found.keys() - COMMANDS)) if name in found}


@contextlib.contextmanager
def _announce_start(command: str) -> Iterator[None]:
    """Say on a terminal that ``command`` starts, until the context ends: what it imports takes seconds on a busy machine."""
    completing = any(name.startswith("_STICKER_UQ_") for name in os.environ)
    words = f"starting {command} ..." if sys.stderr.isatty() and not completing else ""
    typer.echo(words and f"{words}\r", nl=False, err=True)
    try:
        yield
    finally:
        typer.echo(words and f"{' ' * len(words)}\r", nl=False, err=True)


class _Group(TyperGroup):
    """A group of commands that names the nearest one to an unknown one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args[0] not in known and (near := difflib.get_close_matches(args[0], known, 1)):
            ctx.fail(f"No such command {args[0]!r}, did you mean {near[0]!r}?")
        if args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}, expected one of {', '.join(known)}")
        return super().resolve_command(ctx, args)


class _LazyCommand(TyperCommand):
    """A command that imports its module when it is called; until then only name and help text."""

    def load(self) -> Any:
        with _announce_start(str(self.name)):
            module = importlib.import_module(installed_commands()[str(self.name)])
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False)
            app.command()(module.command)
        else:
            app.info.cls = _Group
        command = typer.main.get_command(app)
        command.name = self.name
        command.help = command.help or self.help
        for each in _with_subcommands(command):
            _show_no_type(each.get_params(typer.Context(each)))
        return command

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        command = self.load()
        if _ALL in args:
            args = ["--help" if each == _ALL else each for each in args]
        elif "--help" in args:
            _fit_screen(command, args, parent)
        return command.make_context(info_name, args, parent, **extra)


def _with_subcommands(command: Any) -> list[Any]:
    return [
        command,
        *(each for below in getattr(command, "commands", {}).values() for each in _with_subcommands(below)),
    ]


def _show_no_type(parameters: list[Any]) -> None:
    """Show no type of an option that takes no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""


def _fit_screen(command: Any, args: list[str], parent: Any) -> None:
    """Leave rarely given options out of the requested help until it fits a screen."""
    for word in args:
        command = getattr(command, "commands", {}).get(word, command)
    may_go = [each for each in command.params[::-1] if not each.required and hasattr(each, "hidden")]
    # what is set once, if ever, goes first, what is given often last, and the last of each before the first
    for count, each in enumerate(sorted(may_go, key=_worth), 1):
        if any(_worth(each)) and _lines(command, parent) <= _SCREEN:
            break
        each.hidden = True
        command.epilog = f"{_ALL} shows {count} more options."


def _worth(parameter: Any) -> tuple[bool, bool]:
    return parameter.name in _OFTEN, getattr(parameter, "rich_help_panel", "") != SETTINGS


def _lines(command: Any, parent: Any) -> int:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        command.get_help(typer.Context(command, info_name=command.name, parent=parent))
    return len(shown.getvalue().splitlines())


_FIRST = """\
sticker-uq: an arm peels stickers off laptops only where the detector is sure. What to do first:
  sticker-uq doctor           what this machine has, with advice
  sticker-uq demo             a simulated cell at work, with its gate and without; a report
  sticker-uq replay IMAGES    what the detector sees in your pictures, and how sure it is
  sticker-uq qualify          from your labelled pictures to a cell that is ready
  sticker-uq --help           all commands; sticker-uq COMMAND --help: one of them"""


class _Commands(_Group):
    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if not args and not ctx.resilient_parsing:
            typer.echo(_FIRST)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)
        _show_no_type(parameters)
        for each in parameters:
            each.hidden = each.name.endswith("_completion")
        return parameters

    def list_commands(self, ctx: Any) -> list[str]:
        return list(installed_commands())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS and args[0] not in installed_commands():
            raise InvalidInput(f"{args[0]} is a command of {LAB}, which is not installed: {INSTALL_LAB}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = installed_commands().get(cmd_name)
        if module is None:
            return None
        panel = COMMANDS.get(cmd_name, "Of other packages")
        words = PANELS[panel][cmd_name] if cmd_name in COMMANDS else f"Of {module.partition('.')[0]}."
        return _LazyCommand(cmd_name, help=words, rich_help_panel=panel)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            handled_by_typer = isinstance(error, typer.Abort) or hasattr(error, "exit_code")
            closed_pipe = getattr(error, "errno", None) == errno.EPIPE
            if handled_by_typer or closed_pipe or os.environ.get("STICKER_UQ_DEBUG"):
                raise
            line, status = explain(error)
            typer.echo(line, err=True)
            raise typer.Exit(status) from error


def explain(error: BaseException) -> tuple[str, int]:
    """The error message for `error`, one line or one for each fault of a file, and the exit status."""
    if isinstance(error, KeyboardInterrupt):
        return describe_interruption(), INTERRUPTED
    if isinstance(error, InvalidFile):
        return "\n  ".join(map(printable, (f"error: {error.lines[0]}", *error.lines[1:]))), 2
    if isinstance(error, InvalidInput):
        return f"error: {printable(str(error))}", 2
    if isinstance(error, DeviceFailed):
        return f"error: {printable(str(error))}", 1
    if isinstance(error, ModuleNotFoundError):
        return f"error: the Python package {error.name} is missing: run scripts/setup to install it", 1
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"error: {printable(where)}{error.strerror}", 1
    if isinstance(error, MemoryError):
        return "error: out of memory", 1
    if isinstance(error, RecursionError):
        return "error: something in the input is nested too deeply", 2
    found = f"{type(error).__name__}: {printable(str(error))}"
    return f"internal error: {found} (STICKER_UQ_DEBUG=1 shows where)", 1


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sticker-uq {__version__}")
        raise typer.Exit


app = typer.Typer(cls=_Commands, pretty_exceptions_enable=False)


@app.callback()
def _about(
    version: bool = option(False, "Print the version.", "--version", callback=_print_version, is_eager=True),
) -> None:
    """Sticker detection with uncertainty estimation, for a robot cell that refurbishes laptops.

    Not a safety function (ISO 10218, ISO 13849): it protects laptops and logos, not people.
    """


def main() -> None:
    """Entry point of ``sticker-uq``. Does not return."""
    # torch's threads otherwise spin while they wait for each other, which beside other processes takes several times as long
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - a service may be started without any
    end_on_interrupt()
    import_torchvision_without_compiler()
    if isinstance(sys.stdout, io.TextIOWrapper):  # what its encoding lacks ends no command
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        typer.main.get_command(app).main(prog_name="sticker-uq", args=sys.argv[1:])
    except SystemExit as end:
        if end.code == INTERRUPTED:
            leave()
        raise
