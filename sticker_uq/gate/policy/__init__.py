# SPDX-License-Identifier: Apache-2.0
"""The policy that the gate judges by: its file, schema, limits, rules, signals and validity, and the verdict on one object.
sticker_uq.calibration makes it.
"""
