"""The arm's side of the gate: it moves only while it holds a valid permit."""
