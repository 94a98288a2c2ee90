# SPDX-License-Identifier: Apache-2.0
"""Labelled photographs of other tools as COCO folders of this package: Pascal VOC, YOLO, CVAT, Label Studio, COCO."""
