"""What the nodes share: lifecycle, parameters, quality of service, conversions, diagnostics."""
