# SPDX-License-Identifier: Apache-2.0
"""The study of distinctive localization on abnormal scenes (S002, Giloni et al. 2025): records, tables, report."""
