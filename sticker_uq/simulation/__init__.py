"""A cell without hardware: laptops, what lies on them, and what an arm does to them. No ROS in here."""
