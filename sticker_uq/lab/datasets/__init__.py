"""Data sets: generated, abnormal, reviewed, checked, made from the audit log."""
