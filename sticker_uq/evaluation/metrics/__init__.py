# SPDX-License-Identifier: Apache-2.0
"""Metrics on labelled images: matching, accuracy (COCO's AP, AR), calibration errors, quality of probabilities, statistics."""
