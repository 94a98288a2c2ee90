# SPDX-License-Identifier: Apache-2.0
"""Files and formats, without ROS: images, recordings, topics, message fields, COCO folders and annotations, crops, YAML,
JSON, settings fields, atomic writes.
"""
