# SPDX-License-Identifier: Apache-2.0
"""The browser of the core's tests of the page."""

from test.console.page.conftest import browser, tablet  # noqa: F401
