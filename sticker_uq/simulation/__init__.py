"""Simulated cell: laptops, what lies on them, and what an arm does to them. No ROS."""
