# SPDX-License-Identifier: Apache-2.0
"""Evaluation, in four packages: metrics on labelled images, replay of recordings, reporting, and shadow, a candidate beside
the active bundle.

Nothing is imported here: drawing an image needs neither torch nor the libraries of the metrics.
"""
