"""The ROS 2 nodes: the only package that imports rclpy.

A node converts messages to calls of the other packages and their results to messages. ``common`` has what all nodes share:
lifecycle, parameters, conversions, quality of service, diagnostics. :mod:`sticker_uq.cell` starts the nodes as processes.
"""
