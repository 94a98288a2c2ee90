"""ROS node ``detector``: camera images in, one assessment per image out."""
