# SPDX-License-Identifier: Apache-2.0
"""The operator's web page, without ROS: server, sign-in and secrets, sessions, connections, state, pictures.
sticker_uq.nodes.console feeds it.
"""
