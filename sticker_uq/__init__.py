"""Uncertainty-aware sticker detection for a robot cell that refurbishes laptops.

A robot arm may peel a sticker only while perception is certain; otherwise the operator is asked. The packages form layers, from
``scene`` (shared types) to ``nodes`` (ROS 2) and ``cli``; pyproject.toml has their order, which import-linter checks.
"""

__version__ = "0.1.0"
