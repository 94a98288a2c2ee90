"""Files and formats, without ROS: images, recordings with their topics and message fields, COCO folders, crops, YAML and
JSON, settings fields, atomic writes.
"""
