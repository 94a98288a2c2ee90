# SPDX-License-Identifier: Apache-2.0
"""Novelty detection (run time): foreign objects and missed stickers that no predicted box explains; network, head, regions."""
