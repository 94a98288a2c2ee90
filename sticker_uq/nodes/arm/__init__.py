"""ROS side of the arm: an action server and executor for arm drivers, which move only under a valid permit."""
