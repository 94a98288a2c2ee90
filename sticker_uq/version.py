# SPDX-License-Identifier: Apache-2.0
"""The version of this package: of the newest section of CHANGELOG.md, released once that has a date. setup.py reads it."""

__version__ = "0.4.0"
