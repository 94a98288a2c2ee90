# SPDX-License-Identifier: Apache-2.0
"""ROS side of the arm: action server, heartbeat and executor for drivers of arms, whose motion needs a valid permit."""
