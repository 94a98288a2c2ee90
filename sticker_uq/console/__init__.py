# SPDX-License-Identifier: Apache-2.0
"""The operator's page, without ROS: server, sign-in, sessions, state, pictures. sticker_uq.nodes.console feeds it."""
