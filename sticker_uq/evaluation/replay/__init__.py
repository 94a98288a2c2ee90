"""Replay: recorded images through the perception and policy of the live cell; tables and comparison with the live results."""
