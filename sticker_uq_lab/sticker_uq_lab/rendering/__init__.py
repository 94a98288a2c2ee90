# SPDX-License-Identifier: Apache-2.0
"""Renderer of synthetic laptop scenes from a seed: laptops, logos, stickers, occluders, foreign objects, drawn, painted, lit;
with boxes of what is visible.
"""

from sticker_uq_lab.rendering.render import RenderedScene, encode_scene, render
from sticker_uq_lab.rendering.scene_sampling import sample_scene
from sticker_uq_lab.rendering.scene_spec import SceneSpec

__all__ = ["RenderedScene", "SceneSpec", "encode_scene", "render", "sample_scene"]
