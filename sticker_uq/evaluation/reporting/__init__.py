# SPDX-License-Identifier: Apache-2.0
"""Reports of replays, cells, shadow counts and probability quality: HTML and Markdown pages, charts, annotated images, and
the words they use.
"""
