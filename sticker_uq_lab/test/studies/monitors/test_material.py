# SPDX-License-Identifier: Apache-2.0
"""Crops of the cell's own objects, MNIST and Fashion-MNIST."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from lab_helpers.scenes import rendered
from sticker_uq.io.coco import read_coco
from sticker_uq.perception.monitors.crop_network import CropTraining, train_network
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.studies.monitors.classifier_study import observe_crops
from sticker_uq_lab.studies.monitors.material import SIZE, cell_material, coco_material, mnist
from sticker_uq_lab.studies.monitors.paper_networks import ARCHITECTURES


def test_crops_of_rendered_scenes():
    material = cell_material(6, seed=50)
    assert material.classes == ("lid", "logo", "sticker")
    assert material.train.shape[1:] == (3, SIZE, SIZE)
    assert set(material.train_labels) == {0, 1, 2}
    assert 0 <= material.train.min() < material.train.max() <= 1
    assert len(material.invalid) >= 2
    # bare lid varies less than what lies on it
    spread = material.train.std(axis=(1, 2, 3))
    assert np.median(spread[material.train_labels == 0]) < np.median(spread[material.train_labels == 2])
    assert cell_material(6, seed=50).test.tolist() == material.test.tolist()


def test_crops_of_a_coco_folder(tmp_path):
    data = rendered(tmp_path / "data", range(6), (320, 240))
    material = coco_material(data)
    objects = sum(len(item.boxes) for item in read_coco(data))
    lids = (material.train_labels == 0).sum() + (material.test_labels == 0).sum()
    assert len(material.train) + len(material.test) == objects + lids
    with pytest.raises(InvalidInput, match="expected all of lid, logo and sticker"):
        coco_material(rendered(tmp_path / "clean", [0], (320, 240)))


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(array: np.ndarray) -> bytes:
    """``array`` as the bytes of an IDX file."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(folder: Path, count: int, packed: bool = False) -> np.ndarray:
    """Four files with pictures of bars: one row per class is bright."""
    folder.mkdir()
    labels = np.arange(count, dtype=np.uint8) % 10
    images = np.zeros((count, 28, 28), np.uint8)
    images[np.arange(count), 2 * labels + 3] = 255
    for images_name, labels_name in ((IMAGES, LABELS), ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")):
        for name, array in ((images_name, images), (labels_name, labels)):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))
    return images


@pytest.mark.parametrize("packed", [False, True])
def test_the_four_files_are_the_material(tmp_path, packed):
    images = write(tmp_path / "mnist", 30, packed)
    other = write(tmp_path / "fmnist", 20)
    found = mnist(tmp_path / "mnist", "mnist", tmp_path / "fmnist")
    assert found.train.shape == found.test.shape == (30, 1, 28, 28)
    assert (found.train[:, 0] * 255).astype(np.uint8).tolist() == images.tolist()
    assert found.train_labels.tolist() == [n % 10 for n in range(30)]
    assert (found.invalid[:, 0] * 255).astype(np.uint8).tolist() == other.tolist()
    assert len(found.pairs) == 45
    assert mnist(tmp_path / "mnist", "mnist").invalid.shape == (30, 1, 28, 28)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file, neither with .gz"),
        (b"", "no IDX file of bytes"),
        (b"\0\0\x0d\x03", "no IDX file of bytes"),
        (b"\0\0\x08\x03\0\0", "ends in its header"),
        (
            struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 28),
            r"0 values for the shape \(2147483648, 2147483648, 28\)",
        ),
        (idx(np.zeros((5, 28, 28), np.uint8)), r"pictures \(5, 28, 28\) and labels \(20,\) of train"),
    ],
)
def test_anything_else_is_refused(tmp_path, content, message):
    write(tmp_path / "mnist", 20)
    file = tmp_path / "mnist" / IMAGES
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        mnist(tmp_path / "mnist", "mnist")


def test_a_packed_file_that_is_none_or_never_ends_is_refused(tmp_path, monkeypatch):
    write(tmp_path / "mnist", 20)
    packed = tmp_path / "mnist" / f"{IMAGES}.gz"
    packed.write_bytes(b"\x1f\x8b nothing")
    with pytest.raises(InvalidInput, match="not a gzip file"):
        mnist(tmp_path / "mnist", "mnist")
    monkeypatch.setattr("sticker_uq_lab.studies.monitors.material._MOST_BYTES", 10_000)
    packed.write_bytes(gzip.compress(bytes(10_001)))
    with pytest.raises(InvalidInput, match="more than 10000 bytes unpacked"):
        mnist(tmp_path / "mnist", "mnist")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kind_of_classifier_learns_and_is_observed(tmp_path, architecture):
    large = architecture in ("resnet50", "densenet")
    write(tmp_path / "mnist", 4 if large else 20)
    material = mnist(tmp_path / "mnist", "mnist")
    training = CropTraining(epochs=1 if large else 60, batch=10, learning_rate=3e-3)
    model = train_network(
        ARCHITECTURES[architecture], material.train, np.eye(10)[material.train_labels], 0, training
    )
    seen = observe_crops(model, material.test, 2, 0)
    assert seen.probabilities.shape == (len(material.test), 10)
    assert seen.probabilities.sum(axis=1) == pytest.approx(np.ones(len(material.test)))
    assert seen.samples.shape == (2, len(material.test), 10)
    assert not np.array_equal(seen.samples[0], seen.samples[1]), "dropout is on"
    assert len(seen.layers) >= 3
    assert np.array_equal(seen.probabilities, observe_crops(model, material.test, 1, 0).probabilities), (
        "and off where it must be"
    )
    if not large:
        assert (seen.predicted == material.test_labels).mean() > 0.6
