# SPDX-License-Identifier: Apache-2.0
"""Running a cell, without ROS: its processes and runner, options, nodes' parameters, ROS domain, mailbox, message loss;
bundles, promoted and rolled back.
"""
