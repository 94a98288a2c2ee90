# SPDX-License-Identifier: Apache-2.0
"""Adversarial attacks on detectors, white-box: Dense Adversary Generation, the patch DPatch; attacked targets, steps, success."""
