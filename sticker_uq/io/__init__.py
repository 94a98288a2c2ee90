# SPDX-License-Identifier: Apache-2.0
"""Files and formats, without ROS: images, recordings, topics, messages, COCO folders, YAML, JSON, settings, atomic writes."""
