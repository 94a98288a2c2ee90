# SPDX-License-Identifier: Apache-2.0
"""Assumption monitoring: is the policy's guarantee still valid? Drift test, familiarity, test martingales. Monitors of single
objects: sticker_uq.monitors.
"""
