# SPDX-License-Identifier: Apache-2.0
"""ROS node ``supervisor``: joins the gate (sticker_uq.gate) to topics, services, diagnostics and the arm's action."""
