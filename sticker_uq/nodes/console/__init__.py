"""Node ``console``: serves the operator page."""
