"""Simulation of a cell: laptops, the objects on them, and the effect of the arm. Without ROS."""
