"""The arm's side of the cell: action server, heartbeat and permit check."""
