# SPDX-License-Identifier: Apache-2.0
"""ROS node ``supervisor``: joins the gate's logic to topics, services and the arm's action: scenes in, permits out."""
