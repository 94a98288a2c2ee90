# SPDX-License-Identifier: Apache-2.0
"""Reports of replays, cells and probability quality: pages, charts, annotated images, and the words they use."""
