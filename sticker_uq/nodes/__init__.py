# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 nodes, one package per node, and here the entry points of their executables; only nodes imports rclpy. The logic
is in the other packages.

A node turns messages into calls of the other packages and their results into messages.
"""
