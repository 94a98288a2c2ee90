# SPDX-License-Identifier: Apache-2.0
"""The operator inside the gate: what it keeps of answers, and its steps on an answer, hold, release, reset, new workpiece."""
