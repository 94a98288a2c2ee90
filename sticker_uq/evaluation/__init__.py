"""Evaluation: replays of recordings, accuracy on labelled pictures, annotated pictures and reports.

Nothing is imported here, because drawing a picture needs neither torch nor the libraries of the measurements.
"""
