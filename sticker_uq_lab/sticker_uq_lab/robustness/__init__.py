# SPDX-License-Identifier: Apache-2.0
"""Robustness assessment of a system (S004, Wozniak et al.): specification of circumstances, follow-up images, distances,
metamorphic relation, verdict.

A specification describes the target circumstances and their significance (tasks 1 and 2). :mod:`frequencies` counts which of them
the source images show (task 3). :mod:`followups` makes follow-up images (task 4). :mod:`assessment` assesses a system on source
and follow-up images (tasks 5 to 7). The specification to start from is :func:`spec.laptop_cell`.
"""
