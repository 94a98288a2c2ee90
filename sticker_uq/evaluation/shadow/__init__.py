# SPDX-License-Identifier: Apache-2.0
"""A candidate beside the active detector and policy on the same images: what would differ, counted. Without ROS and torch."""
