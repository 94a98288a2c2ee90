# SPDX-License-Identifier: Apache-2.0
"""ROS node ``shadow``: counts what a candidate bundle would decide differently, by sticker_uq.evaluation.shadow."""
