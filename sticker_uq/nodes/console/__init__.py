# SPDX-License-Identifier: Apache-2.0
"""ROS node ``console``: joins the operator's page (sticker_uq.console) to the cell's topics and services."""
