# SPDX-License-Identifier: Apache-2.0
"""The bench of the core's tests of nodes."""

from test.nodes.conftest import bench  # noqa: F401
