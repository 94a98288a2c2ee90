"""A ROS node under robustness assessment."""
