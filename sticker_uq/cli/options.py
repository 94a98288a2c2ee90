# SPDX-License-Identifier: Apache-2.0
"""Command line options from the settings models of the ROS nodes, with the same names and ranges.

Values come, in rising priority, from the model's default, from a ROS 2 parameter file (``--params``) and from its option.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from rich.markup import escape

from sticker_uq.cell.bundle import OF_THE_MACHINE, Bundle
from sticker_uq.cell.processes import check_parameter_file
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.cli import option
from sticker_uq.io.files import check_output_file, check_output_folder
from sticker_uq.io.parameter_files import read_parameters, refuse_unknown
from sticker_uq.io.reading import show_value
from sticker_uq.io.setting_fields import expectation, kind_of, refusal, without_none, words
from sticker_uq.scene import InvalidInput

_BUNDLE_HELP = "Bundle of `sticker-uq bundle create`: its weights, settings and policy."
Model = TypeVar("Model", bound=BaseModel)
_WIDEST_METAVAR = 24
Jobs = Annotated[
    int, typer.Option(min=0, max=256, help="Processes that share the images or recordings; 0: automatic.")
]
"""The option ``--jobs`` of a command that assesses images."""
Topic = Annotated[str | None, typer.Option(help="Image topic of a recording, if it has several.")]
Alpha = Annotated[
    float, typer.Option(help="Highest rate of images in which anything but a sticker is removed.")
]
Beta = Annotated[
    float,
    typer.Option(
        help="Highest rate of laptops that still carry a sticker among those that had one and are finished without a person; "
        "0: no promise, a person checks clean laptops."
    ),
]
Delta = Annotated[float, typer.Option(help="1 - delta is the confidence of each guarantee.")]
RayAddress = Annotated[
    str, typer.Option(help='Ray cluster instead of processes: "local", "auto" or its address (needs ray).')
]
"""The option ``--ray-address`` of every command that spreads its work, see :mod:`sticker_uq.evaluation.executors`."""
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace what an earlier run wrote to --out; all else in it is refused."
    ),
]
"""The option of every command whose folder ``--out`` must otherwise be new or empty, see :func:`check_result_folder`."""
_PARAMS_HELP = "ROS 2 parameter file (NODE: ros__parameters: ...), as the nodes take it. Options win over it."


def output_file(default: Any, help_text: str, *names: str) -> Any:
    """An option for a file to write. The command does not start when it cannot be written."""
    return option(default, help_text, *names, callback=check_file)


def output_folder(default: Any, help_text: str, empty: bool = False) -> Any:
    """An option for a folder to write to, checked before the command starts; with ``empty`` it must be new or empty."""
    return option(default, help_text, callback=_empty_folder if empty else check_folder)


def _make_check(check: Callable[..., None]) -> Callable[[typer.CallbackParam, Path | None], Path | None]:
    """A callback of an option for something to write: raises InvalidInput when nothing can be written there."""

    def callback(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
        if path is not None:
            name = parameter.opts[0]  # of an argument as the help has it
            check(path, f"{name if name.startswith('-') else name.upper()} {path}")
        return path

    return callback


check_file, check_folder = _make_check(check_output_file), _make_check(check_output_folder)
_empty_folder = _make_check(partial(check_output_folder, empty=True))


def settings_options(
    argument: str,
    model: type[BaseModel],
    node: str,
    also_known: Iterable[str] = (),
    other_help: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Fill the command's parameter `argument` with a `model` made from options and ``--params``.

    Every field becomes ``--field-name``. In the parameter file the section of `node` is read; names in `also_known` are
    parameters of that node that do not apply to the command and are skipped. A command that has a parameter ``params``
    gets the path of the file too (None without one). One that has a parameter ``bundle`` has an option ``--bundle``, which
    takes the place of the others, and gets the :class:`Bundle` or None. Raises InvalidInput when the command runs with a value
    that the model refuses or with an unknown parameter in the file. ``other_help``: the help of options that mean something else
    to this command.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        passed = [name for name in ("params", "bundle") if name in inspect.signature(command).parameters]

        @wraps(command)
        def run(params: Path | None = None, bundle: Path | None = None, **values: Any) -> Any:
            given = {name: values.pop(name) for name in model.model_fields}
            if params is not None:
                check_parameter_file(params)
            known = (*model.model_fields, *also_known)
            from_file = {} if params is None else read_parameters(params, node, known)
            settings = combine(model, from_file, given, params, also_known)
            loaded = load_bundle(bundle, given, params)
            if loaded is not None:
                settings = loaded.settings(settings)  # type: ignore[arg-type]  # the model is perception's
            whole = {"params": params, "bundle": loaded}
            return command(**values, **{name: whole[name] for name in passed}, **{argument: settings})

        files = [_parameter("params", Path, typer.Option("--params", metavar="FILE", help=_PARAMS_HELP))]
        if "bundle" in passed:
            files.append(
                _parameter("bundle", Path, typer.Option("--bundle", metavar="FOLDER", help=_BUNDLE_HELP))
            )
        generated = [
            _option(name, info, (other_help or {}).get(name)) for name, info in model.model_fields.items()
        ]
        return _with_options(run, command, (argument, "params", "bundle"), [*files, *generated])

    return decorate


def supervisor_parameters(params: Path | None) -> dict[str, Any]:
    """What ``--params`` gives to the supervisor, checked as the node does; nothing without a file."""
    if params is None:
        return {}
    known = SupervisorNodeSettings.model_fields
    values = read_parameters(params, "supervisor", known)
    combine(SupervisorNodeSettings, values, {}, params)
    return {name: value for name, value in values.items() if name in known}


def load_bundle(folder: Path | None, given: Mapping[str, Any], params: Path | None) -> Bundle | None:
    """The bundle that ``--bundle`` names, None without one; raises InvalidInput when an option, ``given`` unless None, or a file
    gives what it has itself.
    """
    if folder is None:
        return None
    beside = [
        f"--{name.replace('_', '-')}"
        for name, value in given.items()
        if value is not None and name not in OF_THE_MACHINE
    ]
    if params is not None or beside:
        raise InvalidInput(
            f"--bundle and {beside[0] if beside else '--params'}: expected one of them, a bundle has its own"
        )
    return Bundle.load(folder)


def field_options(
    argument: str, model: type[BaseModel], *names: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give the command's parameter `argument` a dict of the fields `names` of `model` that were given as options."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**values: Any) -> Any:
            given = {name: value for name in names if (value := values.pop(name)) is not None}
            return command(**values, **{argument: given})

        generated = [_option(name, model.model_fields[name]) for name in names]
        return _with_options(run, command, (argument,), generated)

    return decorate


def _with_options(
    run: Callable[..., Any],
    command: Callable[..., Any],
    replaced: Iterable[str],
    options: list[inspect.Parameter],
) -> Callable[..., Any]:
    """`run`, for typer a command with the parameters of `command`, in which `options` stand for those that are `replaced`."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in replaced
    ]
    parameters = [*own, *options]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__  # type: ignore[attr-defined]  # typer reads the signature of the wrapper
    return run


def combine(
    model: type[Model],
    from_file: Mapping[str, Any],
    given: Mapping[str, Any],
    file: Path | None = None,
    also_known: Iterable[str] = (),
) -> Model:
    """A `model` from the values of a parameter file and of options (None: not given), options first.

    Raises InvalidInput naming the option or the parameter, its value and what was expected.
    """
    refuse_unknown(from_file, [*model.model_fields, *also_known], file)
    for name, value in from_file.items():
        info = model.model_fields.get(name)
        if info is None:
            continue
        kinds = (int, float) if kind_of(info) is float else (kind_of(info),)
        if type(value) not in kinds:  # ROS 2 takes no 3.0 for an integer either
            raise InvalidInput(f"{file}: {name} = {show_value(value)}: expected {expectation(info)}")
    options = {name: value for name, value in given.items() if value is not None}
    values = {name: value for name, value in from_file.items() if name in model.model_fields} | options
    try:
        return model(**values)
    except ValidationError as error:
        raise InvalidInput(_explain(error, model, options, file)) from None


def check_settings(model: type[Model], values: Mapping[str, Any]) -> Model:
    """A `model` from options; raises InvalidInput naming the option, its value and what was expected."""
    return combine(model, {}, values)


def _option(name: str, info: FieldInfo, other_help: str | None = None) -> inspect.Parameter:
    """The option of one field. The model checks ranges and choices, as for parameter files."""
    info = without_none(info)
    kind = info.annotation if info.annotation is Path else kind_of(info)
    choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    listed = "|".join(choices)
    short = bool(listed) and len(listed) <= _WIDEST_METAVAR
    dashed = name.replace("_", "-")
    switch = f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"
    facts = [expectation(info)] if kind in (int, float) or (choices and not short) else []
    facts += [f"default {info.default}"] if info.default not in ("", None) else []
    details = f"({', '.join(facts)})" if facts else ""
    option = typer.Option(
        switch,
        help=escape(other_help or f"{info.description or ''} {details}".strip()),
        metavar=listed if short else "NAME" if listed else None,
        show_default=False,
        rich_help_panel="Settings",
    )
    return _parameter(name, kind, option)


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _explain(
    error: ValidationError, model: type[BaseModel], options: Mapping[str, Any], file: Path | None
) -> str:
    """All validation errors of the model in one line."""
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        if name not in model.model_fields:  # a rule of the model's own
            lines.append(words(problem, model))
            continue
        what = f"--{name.replace('_', '-')}" if name in options or file is None else f"{file}: {name} ="
        lines.append(f"{what} {problem['input']!r}: {refusal(model.model_fields[name], problem)}")
    return "; ".join(lines)


def numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise InvalidInput(
            f"{option} {text!r}: expected numbers with commas between them, for example 0,0.1,0.3"
        ) from None
