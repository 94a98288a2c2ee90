"""Recorded images through the same perception and policy as in the cell, and what they gave."""
