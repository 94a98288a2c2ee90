# SPDX-License-Identifier: Apache-2.0
"""Fuzzing of everything that reads what others made: each target of :mod:`test.fuzz.targets` returns or raises InvalidInput.

A short run is part of the tests (`test_targets.py`). Longer ones, each time others: FUZZ_EXAMPLES=100000.
"""
