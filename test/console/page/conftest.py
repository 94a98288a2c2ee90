# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that drive the operator's page in a real browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from test.helpers.browser import TABLET, chromium


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
