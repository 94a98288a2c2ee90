# SPDX-License-Identifier: Apache-2.0
"""ROS node ``console``: what joins the operator's page to the cell's topics and services. The page is in sticker_uq.console."""
