"""Data: procedural laptop scenes drawn from a seed, COCO folders, files that are never half written.

`sample_scene` describes a scene, `render` turns the description into a picture with its boxes; `write_coco`
and `read_coco` keep labelled pictures in COCO folders; `atomic_write` is how every file of the project is
written.
"""

from sticker_uq.datasets.coco import LabelledImage, encode_scene, read_coco, write_coco
from sticker_uq.datasets.files import atomic_write
from sticker_uq.datasets.render import RenderedScene, render
from sticker_uq.datasets.scenes import sample_scene
from sticker_uq.datasets.spec import SceneSpec

__all__ = [
    "LabelledImage",
    "RenderedScene",
    "SceneSpec",
    "atomic_write",
    "encode_scene",
    "read_coco",
    "render",
    "sample_scene",
    "write_coco",
]
