# SPDX-License-Identifier: Apache-2.0
"""ROS nodes in place of hardware: ``cell_sim`` (arm, camera, operator), and ``image_source`` for recordings and files."""
