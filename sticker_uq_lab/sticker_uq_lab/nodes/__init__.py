# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 node of this package: the simulated cell."""
