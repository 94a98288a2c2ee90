# SPDX-License-Identifier: Apache-2.0
"""Robustness assessment of any ROS node: images out on one topic, its detections in on another."""
