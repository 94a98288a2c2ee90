# SPDX-License-Identifier: Apache-2.0
"""From labelled images to a verdict: whether a cell may work with what they trained, why, and what more labels would buy."""
