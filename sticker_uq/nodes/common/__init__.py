# SPDX-License-Identifier: Apache-2.0
"""rclpy helpers that all nodes share: lifecycle, parameters, QoS, images, calibration, diagnostics, launch, conversions."""
