# SPDX-License-Identifier: Apache-2.0
"""The commands of ``sticker-uq`` that this package adds, one file per command; setup.py registers them."""
