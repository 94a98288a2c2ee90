# SPDX-License-Identifier: Apache-2.0
"""Measurements whose figures the documentation quotes, and pages drawn from code; run each with `python -m benchmarks.NAME`."""
