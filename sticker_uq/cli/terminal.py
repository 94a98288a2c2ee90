# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: tables are as wide as they need to be where no terminal limits them."""

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich import progress
from rich.console import Console
from rich.table import Table

from sticker_uq.messages import printable

_WIDTH = 250
"""Columns of an output that is no terminal; rich would cut tables at 80."""
LOG_EVERY = 30.0
"""Seconds between two lines of progress where there is no terminal for a progress bar."""


def command_line() -> str:
    """The command as it was called, to be named in what it makes."""
    return shlex.join(["sticker-uq", *sys.argv[1:]])


def output() -> Console:
    """A console on standard output. ``COLUMNS`` sets its width, as for rich."""
    redirected = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDTH if redirected else None)


def figures(head: Sequence[str], rows: Iterable[Sequence[object]], **style: Any) -> Table:
    """A table of which the first column holds names and the others what is counted or measured."""
    table = Table(**style)
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(str, row))
    return table


def tell_of_source(name: object, remarks: Iterable[str], lost: str) -> bool:
    """Print on standard error what is unusual in a source and what of its images is lost; whether something is."""
    for remark in remarks:
        typer.echo(printable(f"{name}: {remark}"), err=True)
    if lost:
        typer.echo(printable(f"{name}: images are lost: {lost}"), err=True)
    return bool(lost)


def list_lines(title: str, lines: Sequence[str], most: int) -> None:
    """Print how many ``lines`` there are, and the first ``most`` of them."""
    typer.echo(f"{title}: {len(lines)}")
    for line in lines[:most]:
        typer.echo(f"  {printable(line)}")
    if len(lines) > most:
        typer.echo(f"  and {len(lines) - most} more")


def make_progress_bar(transient: bool = False, console: Console | None = None) -> progress.Progress:
    """A bar for each task, by default on standard error: description, how many of how many and per second, time and time left."""
    done = progress.BarColumn(), progress.MofNCompleteColumn(), _Rate()
    times = progress.TimeElapsedColumn(), progress.TimeRemainingColumn()
    columns = progress.TextColumn("{task.description}"), *done, *times
    return progress.Progress(*columns, console=console or Console(stderr=True), transient=transient)


class _Rate(progress.ProgressColumn):
    """How many per second."""

    def render(self, task: progress.Task) -> str:
        speed = task.finished_speed or task.speed
        return f"{speed:.3g}/s" if speed else ""


def step_line(name: str, line: str) -> None:
    typer.echo(f"{name:<11} {line}")


@contextmanager
def stage_bars(
    transient: bool = False, console: Console | None = None
) -> Iterator[Callable[[str, int, int], None]]:
    """A callback (stage, done, total) that shows one progress bar per stage on ``console``, by default standard error.

    Where that is no terminal, it prints a line every half minute, also while the stage does not advance.
    """
    console = console or Console(stderr=True)
    with make_progress_bar(transient, console) as bar, _lines(console) as log:
        tasks: dict[str, progress.TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                # results of an earlier run must not count as speed
                tasks[stage] = bar.add_task(stage, total=total, completed=done)
            bar.update(tasks[stage], completed=done, total=total)
            log(stage, done, total)

        yield advance


@contextmanager
def _lines(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A callback (stage, done, total) of which a thread prints the latest every half minute, unless ``console`` is a terminal."""
    latest: list[tuple[str, int, int, float]] = []
    ended = threading.Event()

    def advance(stage: str, done: int, total: int) -> None:
        begun = latest[0][3] if latest and latest[0][0] == stage else time.monotonic()
        latest[:] = [(stage, done, total, begun)]

    def run() -> None:
        while not ended.wait(LOG_EVERY):
            for stage, done, total, begun in latest[:1]:
                seconds = time.monotonic() - begun
                rate = f", {done / seconds:.3g}/s" if done and seconds >= 1 else ""
                console.print(
                    f"{stage}: {done} of {total} after {seconds:.0f} s{rate}", highlight=False, soft_wrap=True
                )

    if console.is_terminal:
        yield advance
        return
    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        ended.set()
        thread.join()
