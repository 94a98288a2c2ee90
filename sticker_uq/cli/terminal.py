# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: tables are as wide as they need to be where no terminal limits them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TaskID

_WIDTH = 250
"""Columns of an output that is no terminal; rich would cut tables at 80."""


def output() -> Console:
    """A console on standard output. ``COLUMNS`` sets its width, as for rich."""
    redirected = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDTH if redirected else None)


@contextmanager
def stage_bars(
    columns: Sequence[ProgressColumn], console: Console | None = None, transient: bool = False
) -> Iterator[Callable[[str, int, int], None]]:
    """A callback (stage, done, total) that shows one progress bar per stage on ``console``, by default standard output."""
    with Progress(*columns, console=console, transient=transient) as bar:
        tasks: dict[str, TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield advance
