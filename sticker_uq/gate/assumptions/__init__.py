# SPDX-License-Identifier: Apache-2.0
"""Assumption monitoring: is the policy's guarantee still valid? Drift, familiarity, test martingales."""
