# SPDX-License-Identifier: Apache-2.0
"""The detector families' networks, torchvision's Faster R-CNN, RetinaNet and SSD: backbone, pyramid, head maps, anchors;
split at their first dropout.
"""
