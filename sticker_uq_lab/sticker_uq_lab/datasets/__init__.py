# SPDX-License-Identifier: Apache-2.0
"""Making labelled data sets: prompts, generated pictures, abnormal scenes, frames, answers of an audit log; checks, repair.

COCO folders are read by sticker_uq.io.
"""
