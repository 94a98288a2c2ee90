# SPDX-License-Identifier: Apache-2.0
"""ROS nodes in place of hardware: ``cell_sim`` (simulated arm and camera), a simulated operator, ``image_source`` for
recordings and files.
"""
