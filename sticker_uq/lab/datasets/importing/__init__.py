"""Importing labelled pictures of other tools (Pascal VOC, YOLO, CVAT, Label Studio, COCO): files, class names, groups by
laptop, COCO folders of this package.
"""
