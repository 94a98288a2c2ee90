"""ROS node ``recorder``: writes the cell's topics to an mcap file."""
