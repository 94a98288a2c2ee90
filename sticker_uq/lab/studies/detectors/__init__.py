# SPDX-License-Identifier: Apache-2.0
"""The study of detectors (S000, Lu et al.): accuracy, uncertainty and adversarial robustness, compared with statistics.

``measures`` names what is compared, ``significance`` and ``ordering`` decide which model is better, ``analysis`` makes the
tables of the paper from per-image results. Nothing is imported here: the statistics need no torch.
"""
