# SPDX-License-Identifier: Apache-2.0
"""Novelty detection at run time: network, reference and quality; foreign objects and missed stickers."""
