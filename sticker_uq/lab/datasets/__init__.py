"""Data sets: generated, abnormal, reviewed, checked, or made from the audit log."""
