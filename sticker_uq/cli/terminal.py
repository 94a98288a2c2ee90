"""Output of the commands: tables are as wide as they need to be where no terminal limits them."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_WIDTH = 250
"""Columns of an output that is no terminal; rich would cut tables at 80."""


def output() -> Console:
    """A console on standard output. ``COLUMNS`` sets its width, as for rich."""
    redirected = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDTH if redirected else None)
