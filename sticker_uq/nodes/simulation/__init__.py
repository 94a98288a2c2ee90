"""Nodes of the simulated cell, and images from recordings, folders, videos and cameras."""
