# SPDX-License-Identifier: Apache-2.0
"""Replay of recordings through perception and policy, without gate and arm: tables, pictures, comparison with the live cell."""
