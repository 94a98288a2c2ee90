# SPDX-License-Identifier: Apache-2.0
"""Calibration of a policy: labelled images -> limits with a statistical guarantee, fitted on some images, proved on others.

The unit of every guarantee is the image; fitting and proving share no image.
"""
