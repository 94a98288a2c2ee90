"""The processes of a cell, their settings, and how they are started. Without ROS."""
