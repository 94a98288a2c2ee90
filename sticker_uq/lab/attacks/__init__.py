# SPDX-License-Identifier: Apache-2.0
"""Adversarial attacks on detectors: Dense Adversary Generation, projected gradient descent, and the patch DPatch."""
