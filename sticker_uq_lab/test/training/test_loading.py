# SPDX-License-Identifier: Apache-2.0
"""Pictures prepared beside the network: in order, the same from processes as from threads, and the same training."""

import numpy as np
import pytest

from lab_helpers.scenes import rendered
from sticker_uq.detection import load_weights
from sticker_uq_lab.training.augmentation import Sample
from sticker_uq_lab.training.loading import Arrays, ahead, pack, unpack
from sticker_uq_lab.training.training import BEST, Training, TrainSettings

pytestmark = pytest.mark.usefixtures("one_thread")


def samples(number: int) -> list[Sample]:
    rng = np.random.default_rng(number)
    return [
        Sample(
            rng.integers(0, 256, (4 + number, 6, 3), dtype=np.uint8),
            rng.random((count, 4), dtype=np.float32),
            rng.integers(1, 3, count),
        )
        for count in (2, 0, number)
    ]


@pytest.mark.parametrize("processes", [False, True])
def test_prepared_samples_come_in_order(processes):
    def prepare(number: int) -> Arrays:
        return pack(samples(number))

    found = [unpack(arrays) for arrays in ahead(prepare, 11, 2, processes=processes)]
    assert len(found) == 11
    for number, own in enumerate(found):
        for one, wanted in zip(own, samples(number), strict=True):
            for name in ("image", "boxes", "labels"):
                np.testing.assert_array_equal(getattr(one, name), getattr(wanted, name))
                assert getattr(one, name).dtype == getattr(wanted, name).dtype


def test_a_training_with_prepared_pictures_is_the_same_training(tmp_path):
    rendered(tmp_path / "data", range(4), (240, 180), stickers=3)
    tensors = []
    for name, beside in (("alone", False), ("beside", True)):
        settings = TrainSettings(
            data=(tmp_path / "data",), val_data=tmp_path / "data", out=tmp_path / name, epochs=1,
            batch_size=2, start="random", threads=1, dropout=0.2,
        )  # fmt: skip
        training = Training(settings)
        training.beside = beside
        settings.out.mkdir()
        assert training.run(lambda progress: None, lambda result: None, lambda: False)
        tensors.append(load_weights(settings.out / BEST)[0])
    assert tensors[0].keys() == tensors[1].keys()
    assert all(bool((value == tensors[1][key]).all()) for key, value in tensors[0].items())
