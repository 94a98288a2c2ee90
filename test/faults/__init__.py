"""Faults done to real processes; docs/faults.md is the table."""
