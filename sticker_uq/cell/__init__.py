"""Which processes make up a cell, their settings, and how they are started. No ROS in here."""
