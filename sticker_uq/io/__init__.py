"""Data in and out, without ROS: images, recordings, messages, COCO folders, settings, atomic files."""
