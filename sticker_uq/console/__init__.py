"""The operator page without ROS: web application, server, state, images."""
