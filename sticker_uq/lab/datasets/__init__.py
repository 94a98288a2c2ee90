# SPDX-License-Identifier: Apache-2.0
"""Making labelled data sets: prompts, generated pictures and manifest, abnormal scenes, frames, answers of an audit log;
review, checks, repair, suggestions.

COCO folders are read by sticker_uq.io.
"""
