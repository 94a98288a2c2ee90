# SPDX-License-Identifier: Apache-2.0
"""Policy calibration: what perception says about labelled images makes a policy's risk score, probability maps, limits and
panel; fitted, then proved.

The unit of every guarantee is the image; fitting and proving share no image.
"""
