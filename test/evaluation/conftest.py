# SPDX-License-Identifier: Apache-2.0
"""One scene that shows every case, as pictures and reports get it."""

from dataclasses import replace

import numpy as np
import pytest

from sticker_uq.gate.judge import judge
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.scene import Localization, SceneAssessment, Status
from sticker_uq.uncertainty.observe import observe
from test.helpers.samples import LOGO, samples, seen

PASSES = 20
SIZE = (480, 360)
UNSURE = (0.3, 0.1, 0.6)
SURE = (0.03, 0.01, 0.96)


@pytest.fixture(scope="session")
def image() -> np.ndarray:
    return np.full((SIZE[1], SIZE[0], 3), 120, np.uint8)


@pytest.fixture(scope="session")
def assessment() -> SceneAssessment:
    """A sure sticker, an unsure one that wanders, a logo, and something two passes saw."""
    rows = [
        *seen((40, 60, 140, 130), range(PASSES), noise=0.4, seed=1, probabilities=SURE),
        *seen((260, 60, 360, 150), range(0, PASSES, 2), noise=5.0, seed=2, probabilities=UNSURE),
        *seen((200, 200, 280, 240), range(PASSES), noise=0.4, seed=3, probabilities=LOGO),
        *seen((380, 280, 440, 330), (3, 9), noise=1.0, seed=4),
    ]
    objects, unstable, uncertainty = observe(samples(rows, PASSES))
    return SceneAssessment(
        stamp_ns=5_000_000_000,
        frame_id="camera",
        status=Status.OK,
        status_text="",
        image_size=SIZE,
        image_digest="ab" * 16,
        model="ssdlite320_mobilenet_v3_large",
        model_hash="cd" * 32,
        settings_hash="ef" * 32,
        passes=PASSES,
        dropout_rate=0.2,
        objects=tuple(replace(one, novelty=0.1) for one in objects),
        unstable=unstable,
        uncertainty=uncertainty,
        localization=Localization(1000.0, 210.0, 0.21, 0.6),
        scene_distance=0.5,
        timings={"encode": 10.0, "sample": 30.0, "total": 40.0},
    )


@pytest.fixture(scope="session")
def decision(assessment):
    return judge(assessment, Policy())
