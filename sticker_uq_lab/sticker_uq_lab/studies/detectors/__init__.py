# SPDX-License-Identifier: Apache-2.0
"""The detector study (S000, Lu et al.): models by mAP, box quality, uncertainty, adversarial robustness: plan, run, results,
statistics, tiers, charts, pictures.

``measures`` names what is compared, ``significance`` and ``ordering`` decide which model is better, ``analysis`` makes the
tables of the paper from per-image results. Nothing is imported here: the statistics need no torch.
"""
