# SPDX-License-Identifier: Apache-2.0
"""Changes each guard of the gate, one at a time, and tells which changes the gate's tests notice.

    python -m benchmarks.gate_mutation [--out FILE] [--module NAME ...]

A guard is a condition: of ``if``, of a conditional expression, of a comprehension, a comparison, an operand of ``and`` and
``or``. Each is made always true and always false, each comparison loses or gains its boundary, each operand is left out. A
change is killed when a test of the gate fails with it; one that survives is a hole in the tests, or changes nothing
(``EQUIVALENT`` below says why). Every change runs in a process of its own, forked after everything was imported: the changed
code takes the place of the original in the functions themselves. Exit code 1 when a change survived that is not explained.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import io
import os
import signal
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.result_files import result_file
from sticker_uq.io.files import atomic_write

Change = Callable[[Any], object]
"""Changes one node of a syntax tree in place."""

MODULES = (
    "arm_events",
    "permit_consistency",
    "state_machine",
    "operator.operator_events",
    "plausibility",
    "scene_events",
    "clock_events",
    "step_context",
)
TESTS = (
    "test/gate/test_gate_scenes.py",
    "test/gate/test_gate_time.py",
    "test/gate/test_plausibility.py",
    "test/gate/test_image_arrival.py",
    "test/gate/test_permit_consistency.py",
    "test/gate/test_gate_closing.py",
    "test/gate/test_gate_opening.py",
    "test/gate/test_gate_arm.py",
    "test/gate/operator/test_operator_events.py",
    "test/gate/test_block_reasons.py",
    "test/gate/policy/test_unexplained.py",
    "test/gate/policy/test_panel_votes.py",
    "test/gate/assumptions/test_assumption_monitor.py",
    "test/gate/test_exploration.py",
)
EXPLORATION_DEPTH = "2"
PATIENCE_S = 300
"""A change that makes the tests run longer than this is killed too: it makes them hang."""

_NEVER_NONE = "what is asked for None cannot be None there: the condition tells the type checker so"
EQUIVALENT: dict[tuple[str, str], str] = {
    ("arm_events", "`permit.open` is always True"): (
        "a revoked permit closes the gate, so that its ground is lost again, and to revoke it twice does nothing"
    ),
    (
        "arm_events",
        "`permit is None or permit.revoked_ns is None or permit.escalated` without `permit is None`",
    ): _NEVER_NONE,
    (
        "permit_consistency",
        "`reason.value > reason.limit` with GtE",
    ): "at the limit the distance is 0 on either side",
    ("permit_consistency", "`iou(as_box(thing.box), place) >= match_iou` with Gt"): (
        "what lies at exactly the limit is found to be known a line later"
    ),
    (
        "state_machine",
        "`state.undecided_ns and context.passed(state.undecided_ns, settings.undecided_timeout_s) and "
        "(state.decision is not None)` without `state.decision is not None`",
    ): _NEVER_NONE,
    (
        "state_machine",
        "`state.request.whole_scene and state.decision is not None and scenes.unexplained(state.decision)` without "
        "`state.decision is not None`",
    ): _NEVER_NONE,
    (
        "state_machine",
        "`state.decision is not None and scenes.unexplained(state.decision)` without `state.decision is not None`",
    ): _NEVER_NONE,
    (
        "state_machine",
        "`state.decision is not None and any((v.objectors for v in state.decision.verdicts))` without "
        "`state.decision is not None`",
    ): _NEVER_NONE,
    (
        "operator.operator_events",
        "`request is None or refusal is not None` without `request is None`",
    ): _NEVER_NONE,
    (
        "operator.operator_events",
        "`event.answers and state.reference is not None and (state.reference.source != request.source)` without "
        "`state.reference is not None`",
    ): _NEVER_NONE,
    ("operator.operator_events", "`state.reference is not None` is always True"): _NEVER_NONE,
    (
        "scene_events",
        "`permit is not None and permit.open and (not problems)` without `permit.open`",
    ): "to revoke a revoked permit does nothing, and nobody asks for its doubts",
    (
        "scene_events",
        "`context.settings.frozen_images and state.picture is not None and (state.picture.count > 1)` without "
        "`state.picture is not None`",
    ): _NEVER_NONE,
    ("clock_events", "`jump_ns > 0` with GtE"): "called after a jump only, and no jump is 0",
    (
        "clock_events",
        "`permit.revoked_ns is None` is always False",
    ): "the permit was revoked a few lines above: the condition tells the type checker so",
    (
        "clock_events",
        "`check and replace(check, since_ns=now, seen=0, gone=0)` without "
        "`replace(check, since_ns=now, seen=0, gone=0)`",
    ): "a jump closes the gate in the same step, and what closes it begins a verification anew",
    ("step_context", "`state.done or decision is None` without `decision is None`"): _NEVER_NONE,
}
"""(module, description without the line) to why the change alters nothing that can be observed."""

_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


@dataclass(frozen=True)
class Mutant:
    """One change: where, what, and the changed module."""

    module: str
    line: int
    what: str
    tree: ast.Module

    @property
    def key(self) -> tuple[str, str]:
        """Names the change however the lines above it grow."""
        return self.module, self.what


def mutants_of(module: str) -> Iterator[Mutant]:
    """All changes of one module of :mod:`sticker_uq.gate`, from its top to its end."""
    path = importlib.import_module(f"sticker_uq.gate.{module}").__file__
    assert path is not None
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    for number, node in enumerate(ast.walk(tree)):
        for what, change in _changes(node):
            changed = copy.deepcopy(tree)
            change(next(twin for i, twin in enumerate(ast.walk(changed)) if i == number))
            yield Mutant(module, getattr(node, "lineno", 0), what, ast.fix_missing_locations(changed))


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.If | ast.IfExp):
        text = ast.unparse(node.test)
        for constant in (True, False):
            yield f"`{text}` is always {constant}", _setter("test", constant)
    if isinstance(node, ast.comprehension):
        for index, condition in enumerate(node.ifs):
            yield f"filter `{ast.unparse(condition)}` is left out", _without("ifs", index)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _BOUNDARY:
        other = _BOUNDARY[type(node.ops[0])]
        yield f"`{ast.unparse(node)}` with {other.__name__}", _operator(other)
    if isinstance(node, ast.BoolOp):
        for index, value in enumerate(node.values):
            yield f"`{ast.unparse(node)}` without `{ast.unparse(value)}`", _without_operand(index)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("any", "all"):
        other_name = "all" if node.func.id == "any" else "any"
        yield f"`{ast.unparse(node)}` with {other_name}", _renamed(other_name)


def _setter(field: str, value: bool) -> Change:
    return lambda node: setattr(node, field, ast.Constant(value))


def _without(field: str, index: int) -> Change:
    return lambda node: getattr(node, field).pop(index)


def _without_operand(index: int) -> Change:
    def change(node: Any) -> None:
        del node.values[index]
        if len(node.values) == 1:
            node.values *= 2  # no syntax tree has `and` with one operand: `a and a` is `a`

    return change


def _operator(other: type[ast.cmpop]) -> Change:
    return lambda node: node.ops.__setitem__(0, other())


def _renamed(name: str) -> Change:
    return lambda node: setattr(node.func, "id", name)


def install(mutant: Mutant, code: types.CodeType) -> None:
    """Put the changed code into the functions of the module, so that everybody who holds them runs it."""
    _exchange(vars(importlib.import_module(f"sticker_uq.gate.{mutant.module}")), code)


def _exchange(names: dict[str, Any], code: types.CodeType) -> None:
    for part in code.co_consts:
        if not isinstance(part, types.CodeType):
            continue
        held: Any = names.get(part.co_name)
        if isinstance(held, property):
            held = held.fget
        if isinstance(held, classmethod):
            held = held.__func__
        if isinstance(held, types.FunctionType):
            held.__code__ = part
        elif isinstance(held, type):
            _exchange(dict(vars(held)), part)


def run_tests() -> int:
    """Exit status of the gate's tests; they stop at the first failure."""
    os.environ["GATE_EXPLORATION_DEPTH"] = EXPLORATION_DEPTH
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:logging", "--tb=no", *TESTS]))


def survives(mutant: Mutant) -> bool:
    """Whether all tests pass with ``mutant``, tried in a process of its own."""
    code = compile(
        mutant.tree, mutant.module, "exec"
    )  # here, so that a change that is no code counts as no kill
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        status = 1
        try:
            install(mutant, code)
            status = run_tests()
        finally:
            os._exit(min(status, 1))
    _, status = os.waitpid(child, 0)
    return status == 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--module", choices=MODULES, nargs="*", default=MODULES)
    parser.add_argument("--out", type=result_file, help="also write the survivors and the table here")
    options = parser.parse_args()
    if run_tests() != 0:
        print("the tests fail without any change: nothing can be told", file=sys.stderr)
        return 2
    lines = ["| module | changes | killed | equivalent | survived |", "|---|---|---|---|---|"]
    open_questions: list[str] = []
    total = [0, 0, 0, 0]
    for module in options.module:
        made = killed = equivalent = 0
        for mutant in mutants_of(module):
            made += 1
            if not survives(mutant):
                killed += 1
            elif mutant.key in EQUIVALENT:
                equivalent += 1
            else:
                open_questions.append(f"{module}.py:{mutant.line}: {mutant.what}")
                print("survived:", open_questions[-1], flush=True)
        row = [made, killed, equivalent, made - killed - equivalent]
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(f"| {module} | {' | '.join(map(str, row))} |")
        print(lines[-1], flush=True)
    lines.append(f"| all | {' | '.join(map(str, total))} |")
    report = "\n".join([*lines, "", *open_questions])
    print("\n".join(lines))
    if options.out:
        with atomic_write(options.out, "w") as stream:
            stream.write(report + "\n")
    return 1 if open_questions else 0


if __name__ == "__main__":
    sys.exit(main())
