# SPDX-License-Identifier: Apache-2.0
"""ROS side of the arm: an action server and executor for arm drivers, which move only under a valid permit."""
