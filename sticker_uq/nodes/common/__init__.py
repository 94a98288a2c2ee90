# SPDX-License-Identifier: Apache-2.0
"""rclpy helpers shared by all nodes: lifecycle, parameters, quality of service, conversions, diagnostics."""
