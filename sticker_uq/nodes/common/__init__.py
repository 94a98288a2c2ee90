# SPDX-License-Identifier: Apache-2.0
"""rclpy helpers that all nodes share: lifecycle, parameters, QoS, image subscription, calibration, diagnostics, launch;
scene, image and camera as ROS messages.
"""
