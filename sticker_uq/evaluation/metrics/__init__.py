"""Measures on labelled images: accuracy of detections, calibration of probabilities, and statistics."""
