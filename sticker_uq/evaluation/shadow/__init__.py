# SPDX-License-Identifier: Apache-2.0
"""Shadow comparison: a candidate beside the active detector and policy on the same images; what they judge differently,
counted. Without ROS and torch.
"""
