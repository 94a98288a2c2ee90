# SPDX-License-Identifier: Apache-2.0
"""Measurements whose figures the documentation quotes, and pages drawn from code; run each with `python -m benchmarks.NAME`."""

import sys

if sys.argv[:1] == ["-m"]:  # it is run, not imported
    from sticker_uq.io.stopping import end_on_interrupt

    end_on_interrupt()
