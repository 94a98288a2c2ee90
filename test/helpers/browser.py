# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests of the operator's page, and a page without a cell behind it."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, expect, sync_playwright
from starlette.types import ASGIApp, Receive, Scope, Send

from sticker_uq.console.app import Accepted, Person, in_time, make_app
from sticker_uq.console.server import ConsoleSettings, PageServer
from sticker_uq.console.state import ConsoleState

TABLET = {"width": 1024, "height": 768}
PATIENCE_S = 60.0
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser: the system's, or the one that ``playwright install chromium`` brought; skips where there is none."""
    # how soon a page shows something depends on what else the machine does
    expect.set_options(timeout=1000 * PATIENCE_S)
    with sync_playwright() as playwright:
        names = ("chromium", "chromium-browser", "google-chrome")
        path = next((found for name in names if (found := shutil.which(name))), None)
        if path is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium on this machine: apt install chromium, or playwright install chromium")
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def until(page: Page, condition: Callable[[], Any], what: str) -> None:
    """Let ``page`` go on until ``condition()`` is true, which the page itself does not show."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"did not happen within {PATIENCE_S:g} s: {what}"
        page.wait_for_timeout(20)


class FakeCell:
    """Takes what the page says and shows the picture that a test put there."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.commands: list[tuple[str, str]] = []
        self.people: list[Person] = []
        self.wrong_tokens: list[tuple[str, int, int]] = []
        self.refusal: dict[str, Any] | None = None
        canvas = np.full((720, 960, 3), 90, np.uint8)
        cv2.rectangle(canvas, (100, 100), (860, 620), (150, 150, 150), -1)
        self._picture = cv2.imencode(".jpg", canvas)[1].tobytes()

    async def answer(self, said: Any, person: Person) -> Accepted:
        if self.refusal is not None:
            return Accepted(accepted=False, reasons=[self.refusal])
        self.answers.append(said)
        self.people.append(person)
        return Accepted(accepted=True, reasons=[])

    async def command(self, wanted: Any, person: Person) -> Accepted:
        self.commands.append((wanted.command, person.name))
        self.people.append(person)
        return Accepted(accepted=True, reasons=[])

    def picture(self, _: int) -> bytes:
        """The same picture whatever is asked for."""
        return self._picture

    heat = picture

    def note_viewers(self, pages: int, heat: int) -> None:
        """Nothing follows from it here."""

    def wrong_token(self, address: str, lately: int, ever: int) -> None:
        self.wrong_tokens.append((address, lately, ever))


class _Proxy:
    """Middleware that adds a header to requests and WebSockets, which browsers do not do for all of them."""

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._header = (b"x-remote-user", name.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "headers" in scope:
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


@contextmanager
def served(
    state: ConsoleState, cell: FakeCell, punctual: bool = False, proxied: str = "", **settings: Any
) -> Iterator[str]:
    """The address of the page with ``cell`` behind it. ``punctual``: what comes too late is refused, also on a busy machine.
    ``proxied``: whom a proxy before the page names in X-Remote-User.

    A gate that was put once stays in contact, however slow the machine is.
    """

    def patient(*arguments: Any) -> FastAPI:
        app = make_app(*arguments)
        app.dependency_overrides[in_time] = lambda: None
        if proxied:
            app.add_middleware(_Proxy, name=proxied)
        return app

    with patch("sticker_uq.console.server.make_app", make_app if punctual else patient):
        server = PageServer(state, cell, ConsoleSettings(**{"port": 0} | settings))
    try:
        with patch("sticker_uq.console.state.FRESH_S", 600.0):
            yield server.address
    finally:
        server.close()
