# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of data sets."""

import threading

import pytest

from test.helpers.image_service import Service


@pytest.fixture
def service():
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()
