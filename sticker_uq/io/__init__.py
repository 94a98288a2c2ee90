"""Input and output without ROS: images, recordings, messages, COCO folders, settings, atomic file writes."""
