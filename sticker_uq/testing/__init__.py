# SPDX-License-Identifier: Apache-2.0
"""Test doubles and a test bench for drivers and nodes under test: scripted arm, camera, detector, gate, clock, scenes; fault
injection into real processes.

See docs/testing.md.

:mod:`~sticker_uq.testing.scenes`: assessments made by hand; :mod:`~sticker_uq.testing.bench`: an executor, a probe node and node
processes; :mod:`~sticker_uq.testing.arm`: an arm driver under a fake supervisor's gate; :mod:`~sticker_uq.testing.fault_cell`: a
camera, and a cell of real processes for fault injection; :mod:`~sticker_uq.testing.scripted_detector` and
:mod:`~sticker_uq.testing.scripted_arm`: parts that do as they are told. No other package imports this one.
"""
