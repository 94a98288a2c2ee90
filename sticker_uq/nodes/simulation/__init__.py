"""The simulated cell and recorded images as nodes."""
