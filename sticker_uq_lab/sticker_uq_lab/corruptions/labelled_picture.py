# SPDX-License-Identifier: Apache-2.0
"""A labelled picture whose ground truth follows its transformations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import cv2
import numpy as np
import numpy.typing as npt
import shapely

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.rendering.painting import Floats, Image
from sticker_uq_lab.rendering.render import MIN_VISIBLE, RenderedScene
from sticker_uq_lab.rendering.scene_spec import SceneSpec

Points = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class LabelledPicture:
    """A picture and its objects. ``boxes`` are x1 y1 x2 y2 px, pixel (x, y) covers [x, x + 1) by [y, y + 1).

    ``image`` (H, W, 3) uint8 BGR; ``boxes`` (N, 4) float32; ``labels`` (N,) int64; ``origin`` (N,) the index of each object in
    the untransformed picture; ``visible`` (N,) the share of its area there that is still visible; ``hidden`` (M,) indices of
    the objects that are no longer visible enough to be labelled. ``shapes`` (H, W) uint8, if known: index + 1 of the object in
    each pixel, else 0. ``scene``: the description the picture was rendered from, where it is known.
    """

    image: Image
    boxes: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    origin: npt.NDArray[np.int64]
    visible: Floats
    hidden: npt.NDArray[np.int64]
    shapes: Image | None = None
    scene: SceneSpec | None = None

    @classmethod
    def of(
        cls,
        image: Image,
        boxes: npt.NDArray[Any],
        labels: npt.NDArray[Any],
        shapes: Image | None = None,
        scene: SceneSpec | None = None,
    ) -> Self:
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise InvalidInput(
                f"image has shape {image.shape} and type {image.dtype}, expected (H, W, 3) uint8"
            )
        count = len(boxes)
        if boxes.shape != (count, 4) or labels.shape != (count,):
            raise InvalidInput(f"boxes {boxes.shape} and labels {labels.shape}: expected (N, 4) and (N,)")
        boxes, labels = boxes.astype(np.float32), labels.astype(np.int64)
        visible, hidden = np.ones(count, np.float32), np.zeros(0, np.int64)
        return cls(image, boxes, labels, np.arange(count), visible, hidden, shapes, scene)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, px."""
        return self.image.shape[1], self.image.shape[0]

    def with_image(self, image: Image) -> Self:
        return replace(self, image=image)

    def outline(self, index: int) -> Points:
        """Convex outline (V, 2) of the object `index`: of its visible shape where that is known, else of its box."""
        if self.shapes is not None:
            inside = (self.shapes == self.origin[index] + 1).astype(np.uint8)
            found, _ = cv2.findContours(inside, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
            if found:
                pixels = np.concatenate(found).reshape(-1, 2).astype(np.float32)
                corners = np.concatenate([pixels + step for step in ((0, 0), (1, 0), (0, 1), (1, 1))])
                return cv2.convexHull(corners.astype(np.float32)).reshape(-1, 2)
        x1, y1, x2, y2 = self.boxes[index]
        return np.array([(x1, y1), (x2, y1), (x2, y2), (x1, y2)], np.float32)

    def follow_scene(self, image: Image, before: RenderedScene, after: RenderedScene) -> Self:
        """The objects follow the scene from where it renders as `before` to where it renders as `after`."""
        numbers = {int(identity): number for number, identity in enumerate(before.ids)}
        place = {numbers[int(i)]: row for row, i in enumerate(after.ids) if int(i) in numbers}
        visible, boxes = np.zeros(len(self.boxes), np.float32), self.boxes.copy()
        shapes = np.zeros(after.id_map.shape, np.uint8)
        for index, number in enumerate(self.origin.tolist()):
            if number in place:
                row = place[number]
                visible[index], boxes[index] = self.visible[index], after.boxes[row]
                shapes[after.id_map == after.ids[row]] = number + 1
        return replace(self, image=image, shapes=None if self.shapes is None else shapes)._keep(
            boxes, visible
        )

    def _keep(self, boxes: Points, visible: Floats) -> Self:
        """The objects with new boxes, without those that are hardly visible."""
        kept = visible >= MIN_VISIBLE
        return replace(
            self,
            boxes=np.asarray(boxes, np.float32).reshape(-1, 4)[kept],
            labels=self.labels[kept],
            visible=visible[kept],
            origin=self.origin[kept],
            hidden=np.sort(np.concatenate([self.hidden, self.origin[~kept]])),
        )

    def warp(self, matrix: Points, image: Image) -> Self:
        """The objects follow the projective map `matrix` (3, 3) of continuous coordinates to the warped `image`.

        A box becomes the upright box around the mapped outline, cut at the border of the picture. Without shapes the outline is
        the box itself, so the new box is the smallest that certainly contains the object. Parts outside the picture are not
        visible.
        """
        width, height = self.size
        frame = shapely.box(0, 0, width, height)
        boxes, visible = [], self.visible.astype(np.float32)
        for index in range(len(self.boxes)):
            outline = self.outline(index)[None].astype(np.float64)
            mapped = shapely.Polygon(cv2.perspectiveTransform(outline, np.asarray(matrix, np.float64))[0])
            inside = mapped.intersection(frame)
            visible[index] *= inside.area / mapped.area if mapped.area > 0 else 0.0
            boxes.append(inside.bounds if inside.area > 0 else (0, 0, 0, 0))
        shapes = self.shapes
        if shapes is not None:
            shapes = cv2.warpPerspective(shapes, _of_pixels(matrix), self.size, flags=cv2.INTER_NEAREST)
        moved = replace(self, image=image, shapes=shapes, scene=None)
        return moved._keep(np.asarray(boxes, np.float32), visible)

    def with_cover(self, cover: Image, image: Image) -> Self:
        """The objects behind what covers the pixels where `cover` (H, W) is not 0; `image` shows it.

        A box shrinks to the tight box around the visible part of the object (of its box if its shape is unknown), and an object
        of which less than a quarter is visible is not labelled any more, as in rendered scenes.
        """
        boxes, visible = self.boxes.copy(), self.visible.astype(np.float32)
        width, height = self.size
        for index, (x1, y1, x2, y2) in enumerate(self.boxes):
            left, top = max(0, int(np.floor(x1))), max(0, int(np.floor(y1)))
            right, bottom = min(width, int(np.ceil(x2))), min(height, int(np.ceil(y2)))
            part = (slice(top, bottom), slice(left, right))
            if self.shapes is None:
                shape = np.ones((bottom - top, right - left), bool)
            else:
                shape = self.shapes[part] == self.origin[index] + 1
            shows = shape & (cover[part] == 0)
            if shows.sum() == shape.sum():
                continue
            visible[index] *= shows.sum() / shape.sum()
            if shows.any():
                x, y, w, h = cv2.boundingRect(shows.astype(np.uint8))
                x, y = left + x, top + y
                boxes[index] = max(x1, x), max(y1, y), min(x2, x + w), min(y2, y + h)
        shapes = None if self.shapes is None else np.where(cover == 0, self.shapes, 0).astype(np.uint8)
        return replace(self, image=image, shapes=shapes)._keep(boxes, visible)


def _of_pixels(matrix: Points) -> npt.NDArray[np.float64]:
    """The map of continuous coordinates in OpenCV's convention, in which pixel centres are integers."""
    centre = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    return np.linalg.inv(centre) @ np.asarray(matrix, np.float64) @ centre


def warp_image(image: Image, matrix: Points) -> Image:
    """`image` after the projective map `matrix` of continuous coordinates.

    Uncovered places get a blur of its edge: mirroring it would show objects twice.
    """
    height, width = image.shape[:2]
    pixels, size = _of_pixels(matrix), (width, height)
    soft = cv2.GaussianBlur(image, (0, 0), width / 40)
    behind = cv2.warpPerspective(soft, pixels, size, borderMode=cv2.BORDER_REPLICATE)
    inside = cv2.warpPerspective(np.full((height, width), 255, np.uint8), pixels, size)
    share = inside[:, :, None].astype(np.float32) / 255
    # The border of the warped image is blended with the black outside of it.
    mapped = cv2.warpPerspective(image, pixels, size, flags=cv2.INTER_LINEAR).astype(np.float32)
    return np.rint(mapped + behind * (1 - share)).clip(0, 255).astype(np.uint8)
