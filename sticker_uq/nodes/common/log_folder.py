# SPDX-License-Identifier: Apache-2.0
"""Where a node keeps what outlives it when no folder is given."""

from __future__ import annotations

import os
from pathlib import Path

from rclpy.logging import get_logging_directory
from rclpy.node import Node


def default_folder(node: Node, kind: str) -> Path:
    """The folder for ``kind`` (audit) inside ROS's folder of logs; each node of this machine and person has its own."""
    domain = os.environ.get("ROS_DOMAIN_ID") or "0"
    name = node.get_fully_qualified_name().strip("/").replace("/", ".")
    return Path(str(get_logging_directory())) / kind / f"domain_{domain}.{name}"
