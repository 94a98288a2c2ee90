"""Robustness assessment of any ROS node: images out on one topic, its detections in on another."""
