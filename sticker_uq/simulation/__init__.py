# SPDX-License-Identifier: Apache-2.0
"""The simulated cell's world without ROS: laptops, what lies on them, what an arm and an operator do to them. Nodes:
sticker_uq.nodes.simulation.
"""
