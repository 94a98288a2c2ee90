# SPDX-License-Identifier: Apache-2.0
"""The simulated cell without ROS: laptops, what lies on them, what arm and operator do. Node: sticker_uq_lab.nodes.cell_sim."""
