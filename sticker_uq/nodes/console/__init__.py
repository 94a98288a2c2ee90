"""Node ``console``: the operator's page."""
