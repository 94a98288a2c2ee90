"""Data in and out, without ROS: images, recordings, messages, COCO folders, settings, files that are never half written."""
