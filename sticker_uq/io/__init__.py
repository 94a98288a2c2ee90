# SPDX-License-Identifier: Apache-2.0
"""Files and formats, without ROS and without torch: images, recordings, messages, COCO folders, settings, atomic writes."""
