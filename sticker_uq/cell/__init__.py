"""The processes of a cell, their settings, and the runner that starts them. No ROS."""
