# SPDX-License-Identifier: Apache-2.0
"""Novelty detection at run time: the novelty network, head, reference and quality; foreign objects and missed stickers that
no predicted box explains.
"""
