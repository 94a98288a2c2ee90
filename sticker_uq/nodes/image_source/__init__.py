# SPDX-License-Identifier: Apache-2.0
"""ROS node ``image_source``: plays a recording, pictures, a video or a camera device in place of a camera's driver."""
