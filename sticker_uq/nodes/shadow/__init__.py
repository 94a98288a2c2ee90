"""Node ``shadow``: counts what a candidate bundle would decide differently."""
