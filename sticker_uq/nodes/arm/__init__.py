"""The arm's side: it moves only while it holds a valid permit."""
