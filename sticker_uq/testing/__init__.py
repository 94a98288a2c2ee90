# SPDX-License-Identifier: Apache-2.0
"""Test doubles and a test bench for drivers and nodes under test, see docs/testing.md. No other package imports this one."""
