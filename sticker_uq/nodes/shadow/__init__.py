"""ROS node ``shadow``: counts what a candidate bundle would decide differently, by sticker_uq.evaluation.shadow."""
