# SPDX-License-Identifier: Apache-2.0
"""Progress where there is no terminal: lines, also while nothing advances."""

import io
import re
import time
from types import SimpleNamespace

from rich.console import Console

from sticker_uq.cli import terminal


def test_a_log_gets_lines_also_while_a_stage_stands_still(monkeypatch):
    monkeypatch.setattr(terminal, "LOG_EVERY", 0.05)
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: 0.0))
    log = io.StringIO()
    with terminal.stage_bars(True, Console(file=log)) as advance:
        advance("learning", 3, 400)
        deadline = time.monotonic() + 90
        while log.getvalue().count("learning: 3 of 400 after") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        advance("measuring", 1, 9)
        while "measuring" not in log.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = [
        line
        for line in log.getvalue().splitlines()
        if re.fullmatch(r"\w+: \d+ of \d+ after \d+ s(, .+/s)?", line)
    ]
    assert lines[0] == "learning: 3 of 400 after 0 s"
    assert "measuring: 1 of 9 after 0 s" in lines


def test_a_terminal_gets_bars_only(monkeypatch):
    monkeypatch.setattr(terminal, "LOG_EVERY", 0.01)
    screen = io.StringIO()
    with terminal.stage_bars(False, Console(file=screen, force_terminal=True)) as advance:
        advance("learning", 3, 400)
        time.sleep(0.1)
    assert "learning" in screen.getvalue()
    assert "3 of 400" not in screen.getvalue()
