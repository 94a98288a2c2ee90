# SPDX-License-Identifier: Apache-2.0
"""Which process does something, for logs."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any


def whereabouts() -> dict[str, Any]:
    """Which process writes files here: host, user and number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return {"host": socket.gethostname(), "user": user, "pid": os.getpid()}
