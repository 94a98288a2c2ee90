# SPDX-License-Identifier: Apache-2.0
"""Offline laboratory, not needed by a running cell: rendering, data sets, training, attacks, robustness, studies; here, their
worker processes and result tables.
"""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""
