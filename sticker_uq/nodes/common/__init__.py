"""rclpy helpers that all nodes share: lifecycle, parameters, quality of service, subscriptions, diagnostics, launch, log
folders, values as ROS messages.
"""
