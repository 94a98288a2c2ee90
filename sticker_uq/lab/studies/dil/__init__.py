"""The study of distinctive localization on abnormal scenes (S002): records, tables, report."""
