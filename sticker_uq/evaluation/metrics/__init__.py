# SPDX-License-Identifier: Apache-2.0
"""Measures on labelled images: accuracy of detections, calibration of probabilities, and statistics."""
