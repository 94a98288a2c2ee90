"""Uncertainty-aware sticker detection for a robot cell that refurbishes laptops.

A robot arm may peel a sticker only while perception is sure; otherwise a person is asked. The rooms of the package, each
of which imports only those before it: ``scene`` (the vocabulary), ``datasets``, ``detection``, ``uncertainty``,
``localization``, ``perception``, ``supervision``, ``evaluation``, ``robustness``, and around them ``nodes`` (ROS 2) and
``cli``.
"""

__version__ = "0.1.0"
