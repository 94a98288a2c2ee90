"""Accuracy, calibration of probabilities and statistics, each once."""
