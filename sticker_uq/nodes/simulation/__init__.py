# SPDX-License-Identifier: Apache-2.0
"""ROS nodes in place of hardware: the simulated cell, a simulated operator, and images from recordings and files."""
