# SPDX-License-Identifier: Apache-2.0
"""Metrics on labelled images, replay of recordings, reports.

Nothing is imported here: drawing an image needs neither torch nor the libraries of the metrics.
"""
