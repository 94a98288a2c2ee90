"""Nodes of the simulated cell and of recorded images."""
