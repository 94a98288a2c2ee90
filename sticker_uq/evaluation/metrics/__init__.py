"""Metrics on labelled images: matching of detections, their accuracy, calibration errors and quality of probabilities;
statistics: intervals, ROC.
"""
