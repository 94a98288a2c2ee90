"""Any ROS node as a system under robustness assessment."""
