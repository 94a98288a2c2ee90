# SPDX-License-Identifier: Apache-2.0
"""Replay of recordings: images through the cell's perception and policy, without gate and arm; tables, comparison with live."""
