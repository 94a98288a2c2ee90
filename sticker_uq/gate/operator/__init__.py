# SPDX-License-Identifier: Apache-2.0
"""The operator's answers and commands inside the gate: what it keeps of the answers, and its steps on an answer, hold,
release, reset, new workpiece.
"""
