# SPDX-License-Identifier: Apache-2.0
"""Reports of replays, cells and probability quality: HTML and Markdown pages, charts, annotated images."""
