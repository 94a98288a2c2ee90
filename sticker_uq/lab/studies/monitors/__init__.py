# SPDX-License-Identifier: Apache-2.0
"""Studies of monitors (S001, Weiss et al. 2022) and of networks trained for one decision (S003, Ullah et al.)."""
