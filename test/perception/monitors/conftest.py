# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from scipy.special import softmax

from sticker_uq.perception.monitors import Objects


def make_objects(seed: int, n: int = 120, k: int = 3) -> Objects:
    """Objects of three blobs with every field filled."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    features = rng.normal(0, 1, (n, 6)) + 4 * np.eye(6)[labels]
    weight = np.random.default_rng(99).normal(0, 0.3, (6, k)) + 2 * np.eye(6)[:, :k]
    logits = features @ weight - 4
    noisy = [softmax(logits + rng.normal(0, 1, logits.shape), axis=1) for _ in range(8)]
    crops = np.clip(0.2 + 0.6 * np.eye(k)[labels][:, None, :, None] + rng.normal(0, 0.02, (n, 1, k, 4)), 0, 1)
    return Objects(
        probabilities=softmax(logits, axis=1),
        logits=logits,
        samples=np.stack(noisy),
        members=np.stack(noisy[:4]),
        features=features,
        layers=(features[:, :3], features),
        crops=crops.astype(np.float32),
        labels=labels,
    )


@pytest.fixture(scope="session")
def usual() -> Objects:
    return make_objects(1)
