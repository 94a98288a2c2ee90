# SPDX-License-Identifier: Apache-2.0
"""Running a cell, without ROS: processes and runner, options, nodes' parameters, ROS domain, bundles and releases."""
