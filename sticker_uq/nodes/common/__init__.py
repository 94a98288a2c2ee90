"""rclpy helpers shared by all nodes: lifecycle, parameters, quality of service, conversions, diagnostics."""
