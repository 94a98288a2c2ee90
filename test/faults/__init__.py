# SPDX-License-Identifier: Apache-2.0
"""Faults done to real processes; docs/faults.md is the table."""
