"""The ROS 2 nodes, the only package that imports rclpy.

A node turns messages into calls of the other packages and their results into messages.
"""
