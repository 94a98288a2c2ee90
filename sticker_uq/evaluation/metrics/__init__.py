"""Accuracy of detections, calibration of probabilities, and statistics."""
