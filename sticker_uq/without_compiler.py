# SPDX-License-Identifier: Apache-2.0
"""Imported by the server of worker processes before torchvision, which then leaves the compiler of torch out."""

from sticker_uq.imports import import_torchvision_without_compiler

import_torchvision_without_compiler()
