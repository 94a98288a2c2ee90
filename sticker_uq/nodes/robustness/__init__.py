"""Access to a ROS node under robustness assessment."""
