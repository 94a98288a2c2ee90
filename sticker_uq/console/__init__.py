"""The web page of the operator without ROS: application, server, state, pictures."""
