# SPDX-License-Identifier: Apache-2.0
"""ROS node ``detector``: camera images in, one assessment per image out."""
