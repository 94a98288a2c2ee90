# SPDX-License-Identifier: Apache-2.0
"""Ambiguous objects: crops pasted into scenes, the autoencoders that make them, and what is drawn from their codes."""

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sticker_uq.io.coco import LabelledImage, load_annotations, read_coco, write_coco
from sticker_uq.io.crops import MARGIN, crop_square, cut_crops, empty_boxes
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.rendering.render import render
from sticker_uq_lab.rendering.scene_sampling import sample_scene
from sticker_uq_lab.studies.ambiguity.pasting import paste, pasted_scenes
from sticker_uq_lab.studies.ambiguity.raae import (
    Acceptance,
    AmbiguousImages,
    Raae,
    RaaeSettings,
    density,
    draw,
    generate,
    region,
    train_raaes,
    train_round,
)


def blobs(count: int, size: int = 24) -> AmbiguousImages:
    """Bright discs on grey, half of them between logo and sticker, half between lid and sticker."""
    images = np.full((count, 3, size, size), 0.4, np.float32)
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    images[:, :, np.hypot(x, y) < 0.35 * size] = 0.9
    pairs = np.array([[1, 2], [0, 2]])[np.arange(count) % 2]
    return AmbiguousImages(images, pairs, np.tile([0.55, 0.45], (count, 1)))


def test_a_crop_is_the_square_around_its_box():
    image = np.zeros((60, 80, 3), np.uint8)
    image[20:40, 30:50] = (0, 128, 255)
    box = np.array([30.0, 20.0, 50.0, 40.0])
    left, top, side = crop_square(box)
    assert (left + side / 2, top + side / 2) == pytest.approx((40, 30), abs=1)
    assert side == round(20 * MARGIN)
    (crop,) = cut_crops(image, box[None], 25)
    assert crop.shape == (3, 25, 25)
    assert crop[:, 12, 12] == pytest.approx([0, 128 / 255, 1])
    assert crop[:, 0].max() == 0


def test_a_crop_at_the_edge_shows_the_mirror_image():
    image = np.random.default_rng(0).integers(0, 255, (40, 40, 3)).astype(np.uint8)
    (crop,) = cut_crops(image, np.array([[-8.0, 4.0, 8.0, 20.0]]), 20)
    assert crop[:, :, :10] == pytest.approx(crop[:, :, 19:9:-1])


def test_empty_places_touch_nothing():
    boxes = np.array([[100.0, 80, 160, 140], [240, 150, 300, 200]], np.float32)
    found = empty_boxes((400, 300), boxes, 4, np.random.default_rng(3))
    assert len(found) >= 2
    for number, place in enumerate(found):
        left, top, side = crop_square(place)
        for other in np.concatenate([boxes, found[:number]]):
            apart = left + 1 >= other[2] or left + side - 1 <= other[0] or top + 1 >= other[3]
            assert apart or top + side - 1 <= other[1]
    assert len(empty_boxes((400, 300), np.array([[0.0, 0, 400, 300]]), 3, np.random.default_rng(0))) == 0


def test_the_borders_are_seamless():
    ground = np.full((200, 240, 3), (180, 90, 60), np.uint8)
    image, boxes = paste(ground, np.zeros((0, 4)), blobs(1).images, np.array([0]), np.random.default_rng(1))
    (box,) = boxes
    left, top, side = crop_square(box)
    piece = image[top : top + side, left : left + side].astype(int)
    border = np.concatenate([piece[1], piece[-2], piece[:, 1], piece[:, -2]])
    assert np.abs(border - [180, 90, 60]).max() <= 6  # plainly pasted, it would be 120
    assert np.abs(piece[side // 2, side // 2] - [180, 90, 60]).min() > 40
    outside = image.copy()
    outside[top : top + side, left : left + side] = ground[0, 0]
    assert (outside == ground).all()


def test_scenes_with_probabilistic_labels(tmp_path):
    (tmp_path / "images").mkdir()
    items = []

    for seed in (3, 4):
        scene = render(sample_scene(seed), (320, 240))
        path = tmp_path / f"images/{seed}.png"
        cv2.imwrite(str(path), scene.image)
        items.append(LabelledImage(path, seed, 320, 240, scene.boxes, scene.labels))
    out = tmp_path / "pasted"
    assert write_coco(out, pasted_scenes(items, blobs(6), 2, seed=0)) == 2
    pasted = read_coco(out)
    annotations = load_annotations(out)["annotations"]
    added = [a for a in annotations if a["ambiguous"]]
    assert 2 <= len(added) <= 4
    assert len(annotations) == len(added) + sum(len(item.labels) for item in items)
    for annotation in annotations:
        assert sum(annotation["probabilities"]) == pytest.approx(1)
        if not annotation["ambiguous"]:
            assert annotation["probabilities"][annotation["category_id"]] == 1
    # the more probable class that is an object: logo of logo and sticker, sticker of lid and sticker
    assert {(a["category_id"], *a["probabilities"]) for a in added} <= {
        (1, 0, 0.55, 0.45),
        (2, 0.55, 0, 0.45),
    }
    again = tmp_path / "again"
    write_coco(again, pasted_scenes(items, blobs(6), 2, seed=0))
    assert [p.path.read_bytes() for p in read_coco(again)] == [p.path.read_bytes() for p in pasted]


QUICK = RaaeSettings(steps=300, learning_rate=3e-3)


def sides(seed: int = 0, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (N, 1, 4, 4) of classes 3 (left), 5 (right) and 8 (all)."""
    rng = np.random.default_rng(seed)
    labels = np.array([3, 5, 8])[rng.integers(0, 3, n)]
    images = rng.uniform(0.0, 0.1, (n, 1, 4, 4))
    images[labels == 3, :, :, :2] += 0.7
    images[labels == 5, :, :, 2:] += 0.7
    images[labels == 8] += 0.5
    return images.astype(np.float32), labels


@pytest.fixture(scope="module")
def trained() -> list[Raae]:
    return train_raaes(*sides(), pairs=[(3, 5), (8, 5)], settings=QUICK)


def test_every_pair_has_an_accepted_autoencoder(trained):
    assert [raae.pair for raae in trained] == [(3, 5), (8, 5)]
    assert all(raae.acceptance.is_accepted for raae in trained)


def test_codes_and_labels_of_nominal_pictures(trained):
    images, labels = sides(1)
    for raae in trained:
        for side, label in enumerate(raae.pair):
            codes = raae.encode(torch.from_numpy(images[labels == label]))
            probabilities = raae.label(codes)
            assert float(codes[:, 0].mean()) == pytest.approx(3 * (2 * side - 1), abs=1.5)
            assert torch.allclose(probabilities.sum(dim=1), torch.ones(len(codes)))
            assert float((probabilities[:, side] > 0.5).float().mean()) > 0.9
            assert float(probabilities[:, side].median()) > 0.8  # the class is not only ahead, it is sure


def test_nominal_pictures_can_be_drawn_again(trained):
    images, labels = sides(1)
    own = torch.from_numpy(images[labels == 3])
    again = trained[0].decode(trained[0].encode(own))
    assert again.shape == own.shape
    assert float(((again - own) ** 2).mean()) < 0.02
    middle = trained[0].decode(torch.zeros(1, 2))[0, 0].mean(dim=0)
    left, right = (float(half.mean()) for half in (middle[:2], middle[2:]))
    assert min(left, right) > 0.1  # something of both


def test_the_same_seed_gives_the_same_autoencoder():
    short = replace(QUICK, steps=3)
    one, other = (train_round(*sides(), pairs=[(3, 5)], settings=short, seed=7)[0] for _ in range(2))
    codes = torch.tensor([[0.3, -0.2]])
    assert one.decode(codes).tolist() == other.decode(codes).tolist()
    assert one.acceptance == other.acceptance


def test_the_papers_training_never_sees_a_class_under_the_other_name():
    """So what its discriminator says of the middle of a class under the other name, and every label, is left to chance."""
    centres = torch.tensor([[-3.0, 0.0], [3.0, 0.0]])
    sure = []
    for swapped in (True, False):
        raaes = train_round(*sides(), pairs=[(3, 5)] * 6, settings=replace(QUICK, swapped=swapped), seed=0)
        sure.append([float(raae.label(centres).max(dim=1).values.min()) for raae in raaes])
    assert min(sure[0]) > 0.8
    assert max(sure[1]) < 0.7


@pytest.mark.parametrize(
    ("told", "right", "accepted"), [(0.5, 0.95, True), (0.4, 1, False), (0.61, 1, False), (0.5, 0.89, False)]
)
def test_acceptance(told, right, accepted):
    assert Acceptance(told, right).is_accepted is accepted


def test_an_autoencoder_that_is_never_accepted_is_an_error():
    hopeless = replace(QUICK, steps=1, tries=2)
    with pytest.raises(InvalidInput, match="no autoencoder of 3 and 5 was accepted in 2 tries"):
        train_raaes(*sides(), pairs=[(3, 5)], settings=hopeless)


class Formula(nn.Module):
    def __init__(self, formula: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._formula = formula

    def forward(self, values: Tensor) -> Tensor:
        return self._formula(values)


def made(decoder: Callable[[Tensor], Tensor], latent: int = 2, sharp: float = 1.0) -> Raae:
    """An autoencoder whose label is about a logistic function of the first coordinate."""

    def tell(codes: Tensor) -> Tensor:
        side = codes[:, -1:] - codes[:, -2:-1]  # -1 for the first class, 1 for the second
        return sharp * codes[:, :1] * side - 6  # far below 0 a sigmoid is an exponential

    return Raae(
        pair=(2, 7),
        shape=(1, 1, 2),
        settings=RaaeSettings(latent=latent),
        encoder=Formula(lambda x: x),
        decoder=Formula(decoder),
        discriminator=Formula(tell),
        acceptance=Acceptance(0.5, 1.0),
    )


def test_density_of_a_linear_decoder_is_the_norm_of_its_matrix():
    matrix = torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]], dtype=torch.float64)
    found = density(lambda z: z @ matrix, torch.randn(5, 2, dtype=torch.float64))
    assert found.numpy() == pytest.approx(np.full(5, np.sqrt(15)))


def test_density_sees_change_that_does_not_change_the_energy():
    codes = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None].requires_grad_()

    def turning(z: Tensor) -> Tensor:
        return torch.cat([torch.cos(z), torch.sin(z)], dim=1)

    (energy,) = torch.autograd.grad((turning(codes) ** 2).sum(), codes)
    assert float(energy.abs().max()) < 1e-12  # what the published code weighs by
    assert density(turning, codes.detach()).numpy() == pytest.approx(np.ones(9))


def test_points_gather_where_the_picture_changes_and_on_the_right_axis():
    def fast_above(z: Tensor) -> Tensor:
        slope = torch.where(z[:, 1:2] > 0, 3.0, 1.0)
        return torch.cat([slope * z[:, 1:2], slope * z[:, 0:1]], dim=1) / 10

    codes, _ = draw(made(fast_above, sharp=0.1), 4000, delta_max=0.9)
    # the sigmoid of the decoder makes the ratio a little smaller than 3 : 1
    assert (codes[:, 1] > 0).mean() == pytest.approx(0.74, abs=0.02)
    assert (codes[:, 0] > 0).mean() == pytest.approx(0.5, abs=0.02)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.floats(0.1, 0.6), st.integers(0, 1000))
def test_every_point_is_ambiguous_and_between_the_classes(latent, delta, seed):
    codes, labels = draw(made(lambda z: z[:, :1].expand(-1, 2), latent), 50, delta, seed)
    low, high = region(3.0, latent)
    assert codes.shape == (50, latent)
    assert (np.abs(labels[:, 0] - labels[:, 1]) <= delta).all()
    assert labels.sum(axis=1) == pytest.approx(np.ones(50))
    assert ((codes >= low) & (codes <= high)).all()


def test_the_label_is_the_papers():
    codes = np.array([[-1.0, 0.5], [0.0, 0.0], [2.0, -1.0]])
    found = made(lambda z: z).label(torch.from_numpy(codes)).numpy()
    each = np.stack([1 / (1 + np.exp(6 + codes[:, 0])), 1 / (1 + np.exp(6 - codes[:, 0]))], axis=1)
    assert found == pytest.approx(each / each.sum(axis=1, keepdims=True), rel=1e-4)


def test_labels_as_class_vectors():
    images = generate([made(lambda z: z), made(lambda z: 2 * z)], 7)
    assert images.images.shape == (7, 1, 1, 2)
    assert images.images.min() >= 0
    assert images.images.max() <= 1
    vectors = images.vectors(9)
    assert vectors.sum(axis=1) == pytest.approx(np.ones(7))
    assert set(np.nonzero(vectors)[1]) == {2, 7}
    assert generate([made(lambda z: z), made(lambda z: 2 * z)], 7).images.tolist() == images.images.tolist()
