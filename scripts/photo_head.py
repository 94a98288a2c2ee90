# SPDX-License-Identifier: Apache-2.0
"""Fits the photo head for weights that exist: python scripts/photo_head.py FILE DATA... [--weights WEIGHTS]

FILE: NAME_photo.safetensors beside WEIGHTS, NAME.safetensors, which are the packaged ones by default; DATA: COCO folders.
`sticker-uq train --photo-head` does so for weights that it trains.
"""

import argparse
from pathlib import Path

from sticker_uq.detection.detector import load_detector
from sticker_uq.io.coco import read_coco
from sticker_uq.perception import PerceptionSettings
from sticker_uq_lab.training.photo_head import CALLED_FROM, learn_photo_head

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--weights", default="")
    asked = parser.parse_args()
    detector = load_detector(PerceptionSettings(device="cpu", weights=asked.weights, score_floor=CALLED_FROM))
    learn_photo_head(detector, [item for folder in asked.data for item in read_coco(folder)], asked.file)
