# SPDX-License-Identifier: Apache-2.0
"""The policy that the gate judges by: file, schema, limits, rules, signals, validity. sticker_uq.calibration makes it."""
