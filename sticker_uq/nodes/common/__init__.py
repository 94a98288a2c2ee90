"""Shared by the nodes: lifecycle, parameters, quality of service, conversions, diagnostics."""
