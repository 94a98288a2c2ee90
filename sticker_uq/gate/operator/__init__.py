# SPDX-License-Identifier: Apache-2.0
"""Operator's side of the gate's logic: the answers it keeps, and how its state machine reacts to answers and commands."""
