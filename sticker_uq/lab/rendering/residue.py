# SPDX-License-Identifier: Apache-2.0
"""Sticker residue: a film of adhesive with torn paper on it."""

from __future__ import annotations

import cv2
import numpy as np

from sticker_uq.lab.rendering.painting import Floats, clouds, grain, turned
from sticker_uq.lab.rendering.scene_spec import ResidueSpec

COVERED = 0.6
"""Share of a residue's rectangle that is covered."""


def paint_residue(residue: ResidueSpec, scale: float) -> tuple[Floats, Floats]:
    """Painted residue: colours (h,w,3), grey levels, and opacity (h,w), 0 to 1, at `scale` pixels per unit, turned by its
    angle.
    """
    rng = np.random.default_rng(residue.seed)
    width, height = max(8, round(residue.width * scale)), max(8, round(residue.height * scale))
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    edge = np.maximum(np.abs(xs / (width - 1) - 0.5), np.abs(ys / (height - 1) - 0.5)) * 2
    ragged = clouds(rng, width, height, (4, 3), 3) * 0.8 - edge**4
    film = ragged > np.quantile(ragged, 1 - COVERED)
    tears = clouds(rng, width, height, (5, 4), 3)
    paper = film & (tears > np.quantile(tears, rng.uniform(0.35, 0.75)))
    opacity = np.where(paper, rng.uniform(0.75, 0.95), np.where(film, rng.uniform(0.25, 0.5), 0))
    opacity = cv2.GaussianBlur(opacity.astype(np.float32), (0, 0), max(0.6, 1.2 * scale))
    dirt, white = rng.uniform(90, 190), rng.uniform(195, 240)
    tone = np.where(
        paper, white + grain(rng, width, height) * 9, dirt + clouds(rng, width, height, (9, 7)) * 25
    )
    warm = np.array([0.92, 0.98, 1.0], np.float32)
    colours = np.clip(tone, 0, 255).astype(np.float32)[:, :, None] * warm
    return turned(colours, residue.angle), turned(opacity, residue.angle)
