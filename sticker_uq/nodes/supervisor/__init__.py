# SPDX-License-Identifier: Apache-2.0
"""ROS node ``supervisor``: joins the gate to topics, services, diagnostics and the arm's action: scenes in, permits out. Its
logic: sticker_uq.gate.
"""
