# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that drive the operator's page in a real browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from sticker_uq.console.state import ConsoleState
from test.helpers.browser import TABLET, FakeCell, chromium, served
from test.helpers.operator import Operator
from test.helpers.operator_page import gate


# Of this package: while Playwright is open its event loop counts as running, and asyncio.run() of other tests refuses.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def tablet(browser: Browser) -> Iterator[BrowserContext]:
    """A browser like the tablet beside a cell: 1024x768, a finger instead of a mouse is possible, nothing stored yet."""
    context = browser.new_context(viewport=TABLET, has_touch=True)
    context.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    yield context
    context.close()


@pytest.fixture
def operator(tablet, monkeypatch):
    monkeypatch.setattr("sticker_uq.console.state.HEALTH_FRESH_S", 600.0)  # whatever else runs on the machine
    state, cell = ConsoleState(("detector", "supervisor")), FakeCell()
    state.put("gate", gate("monitoring", "inconsistent"))
    with served(state, cell) as address:
        someone = Operator(tablet, address, state, cell)
        yield someone
        assert someone.trouble == []
        someone.page.close()  # a server waits for the pages that it has
