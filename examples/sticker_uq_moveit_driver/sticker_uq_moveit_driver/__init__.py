# SPDX-License-Identifier: Apache-2.0
"""An arm driver for MoveIt 2 and ros2_control, built on ``sticker_uq.nodes.arm``."""
