# SPDX-License-Identifier: Apache-2.0
"""The operator's page, without ROS: web application and server, sign-in, state, pictures. sticker_uq.nodes.console feeds it."""
