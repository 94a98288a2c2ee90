"""Assumption monitoring of the gate: is the policy's guarantee still valid? Drift, familiarity, test martingales."""
