# SPDX-License-Identifier: Apache-2.0
"""ROS node ``recorder``: writes the cell's topics to an mcap file."""
