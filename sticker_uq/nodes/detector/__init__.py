# SPDX-License-Identifier: Apache-2.0
"""ROS node ``detector``: camera images in, scenes out: cameras, mailbox, worker, model exchange, topics, vision_msgs."""
