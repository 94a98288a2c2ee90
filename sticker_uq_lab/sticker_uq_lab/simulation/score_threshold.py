# SPDX-License-Identifier: Apache-2.0
"""The simulated cell with a plain score threshold in place of the gate, to compare with. Without ROS."""

import numpy as np

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.scene import FloatArray, ObjectClass
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.simulation.simulated_cell import LaptopRecord, SimulatedCell, SimulationSettings, Touch

MOST_IMAGES = 30
"""Images of one laptop, after which it leaves as it is."""
_SAME_PLACE_IOU = 0.5


def peel_by_score(
    settings: SimulationSettings, detector: StochasticDetector, least_score: float
) -> list[LaptopRecord]:
    """Ground truth of the laptops of ``settings``, peeled wherever one pass without dropout says sticker with ``least_score``.

    The arm is that of the simulated cell: a removal that fails is repeated. It works down one image and looks again until
    nothing is left to do. A place where it met no sticker is not tried again.
    """
    cell = SimulatedCell(settings)
    more = True
    while more:
        tried: list[FloatArray] = []
        for _ in range(MOST_IMAGES):
            detections = detector.detect(detector.encode(cell.picture()))
            probabilities = detections.probabilities
            chosen = (probabilities.argmax(axis=1) == ObjectClass.STICKER) & (
                probabilities[:, ObjectClass.STICKER] >= least_score
            )
            found = detections.boxes[chosen]
            known = iou_matrix(found, np.reshape(tried, (-1, 4))) >= _SAME_PLACE_IOU
            boxes = list(found[~known.any(axis=1)])
            for box in boxes:
                if cell.motion_fails():
                    cell.record.motions_failed += 1
                elif cell.peel(box) is not Touch.STICKER:
                    tried.append(box)
            if not boxes:
                break
        more = cell.hand_over()
    return cell.records
