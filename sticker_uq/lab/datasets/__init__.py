# SPDX-License-Identifier: Apache-2.0
"""Making labelled data sets: generated, abnormal, reviewed, checked, or from the audit log.
Reading COCO folders: sticker_uq.io.
"""
