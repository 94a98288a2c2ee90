"""The ROS 2 nodes: thin, and the only room that imports rclpy.

A node turns messages into calls of the other rooms and their results into messages. ``lifecycle`` and
``parameters`` are what they all stand on, ``conversions`` and ``images`` translate, ``qos`` and
``diagnostics`` are the same for all; ``processes`` and ``runner`` say which nodes make up a cell and start
them.
"""
