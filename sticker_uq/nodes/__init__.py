# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 nodes, one package per node; the only package that imports rclpy. Their logic is in the other packages.

A node turns messages into calls of the other packages and their results into messages.
"""
