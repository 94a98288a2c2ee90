"""Uncertainty-aware sticker detection for a robot cell that refurbishes laptops.

The robot arm may peel a sticker only while the uncertainty of perception is below the limits of a policy; otherwise the
operator is asked. docs/contributing.md lists the packages and what each may import.
"""

__version__ = "0.2.0"
