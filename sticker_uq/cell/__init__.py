# SPDX-License-Identifier: Apache-2.0
"""Starting a cell: its processes, their settings and the runner that starts them; bundles of what it was qualified with.
No ROS.
"""
