# SPDX-License-Identifier: Apache-2.0
"""Importing labelled pictures of other tools (Pascal VOC, YOLO, CVAT, Label Studio, COCO): annotation files, class names,
orientation, groups by laptop.

They become COCO folders of this package.
"""
