"""Attacks on detectors: Dense Adversary Generation and DPatch."""
