# SPDX-License-Identifier: Apache-2.0
"""The detector families' networks, torchvision's Faster R-CNN, RetinaNet and SSD, split at their first dropout."""
