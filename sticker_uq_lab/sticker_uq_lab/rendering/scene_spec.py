# SPDX-License-Identifier: Apache-2.0
"""Description of a laptop scene, independent of the rendered size.

Lengths on the laptop are in laptop units: the laptop is 1000 units wide, x points right and y towards the user, the origin is its
upper left corner. The reference frame of the picture is 1 wide and 0.75 high.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sticker_uq.scene import InvalidInput

FRAME_HEIGHT = 0.75
"""Height of the reference frame, whose width is 1."""

Colour = tuple[int, int, int]
"""Blue, green, red, 0 to 255."""
Point = tuple[float, float]


@dataclass(frozen=True)
class FixtureSpec:
    """A part or print of the case that is neither logo nor sticker, one of `things.FIXTURES`."""

    kind: str
    centre: Point
    size: float  # half of its longer side, laptop units
    angle: float
    seed: int


@dataclass(frozen=True)
class ThingSpec:
    """Something that lies or reaches over the scene, one of `things.THINGS`; in the reference frame."""

    kind: str
    centre: Point
    size: float  # about half of its length
    angle: float
    seed: int


@dataclass(frozen=True)
class LaptopSpec:
    brand: int
    view: str
    """"lid" (closed, seen from above), "deck" (open) or "flat" (opened until the screen lies beside the keyboard)."""
    depth: float  # extent in y, laptop units
    colour: Colour
    deck_colour: Colour
    key_colour: Colour
    legend_colour: Colour
    texture: str  # "brushed", "matte", "glossy" or "carbon"
    decoration: str
    gloss: float
    corner: float  # corner radius, laptop units
    numpad: bool
    trackpoint: bool
    fingerprint: bool
    hinge_below: bool
    scratches: int
    dust: float
    seed: int
    fixtures: tuple[FixtureSpec, ...] = ()
    screen: str = ""  # a picture file that the screen of an opened laptop shows


@dataclass(frozen=True)
class PoseSpec:
    homography: tuple[float, ...]  # nine numbers, row by row: laptop units to the reference frame
    width: float  # length of the laptop's long side as a fraction of the frame's width
    angle: float  # rotation in degrees, clockwise in the picture


@dataclass(frozen=True)
class LogoSpec:
    """A brand's emblem, word mark or both."""

    id: int
    brand: int
    layout: str  # "emblem", "word", "stacked" or "row"
    centre: Point
    width: float
    height: float
    finish: str  # "metal", "embossed", "colour" or "bright"
    colour: Colour
    angle: float = 0.0
    design: str = ""  # a picture file that is shown in its place


@dataclass(frozen=True)
class StickerSpec:
    id: int
    shape: str
    print: str
    motif: str  # the figure, words or pattern of the print; of the shape "design" a picture file
    centre: Point
    width: float
    height: float
    angle: float
    colours: tuple[Colour, ...]
    border: float  # width of the unprinted rim as a fraction of the shorter side
    wear: float  # 0 (new) to 1 (scratched and torn)
    faded: float
    peel: float  # part of the sticker, along `peel_angle`, that has come loose and folded over (0 to 0.35)
    peel_angle: float
    gloss: float
    seed: int


@dataclass(frozen=True)
class ResidueSpec:
    """Adhesive and torn paper that a sticker left on the laptop; lies under logos and stickers."""

    centre: Point
    width: float
    height: float
    angle: float
    seed: int


@dataclass(frozen=True)
class BackgroundSpec:
    kind: str  # "wood", "mat", "conveyor", "metal" or "cloth"
    colour: Colour
    angle: float
    clutter: tuple[str, ...]
    seed: int
    photograph: str = ""  # a picture file, in place of the drawn surface


@dataclass(frozen=True)
class LightSpec:
    direction: float
    gradient: float
    hot_spot: Point
    hot_strength: float
    hot_radius: float
    specular: str  # "none", "streak", "window" or "lamp"
    specular_centre: Point
    specular_angle: float
    specular_strength: float
    shadow: str  # "none", "edge", "bars" or "arm"
    shadow_strength: float
    shadow_angle: float
    shadow_offset: float
    vignette: float


@dataclass(frozen=True)
class CameraSpec:
    blur: float
    motion: float
    motion_angle: float
    noise: float  # standard deviation in grey levels
    noise_seed: int
    white_balance: tuple[float, float, float]
    gamma: float
    exposure: float


@dataclass(frozen=True)
class SceneSpec:
    seed: int
    laptop: LaptopSpec
    pose: PoseSpec
    background: BackgroundSpec
    light: LightSpec
    camera: CameraSpec
    logos: tuple[LogoSpec, ...] = field(default=())
    stickers: tuple[StickerSpec, ...] = field(default=())
    """From bottom to top."""
    residues: tuple[ResidueSpec, ...] = field(default=())
    things: tuple[ThingSpec, ...] = field(default=())

    def without_sticker(self, sticker_id: int) -> SceneSpec:
        """The same scene without that sticker; InvalidInput if it has no sticker of that id."""
        left = tuple(sticker for sticker in self.stickers if sticker.id != sticker_id)
        if len(left) == len(self.stickers):
            present = ", ".join(str(sticker.id) for sticker in self.stickers) or "none"
            raise InvalidInput(
                f"sticker_id {sticker_id}: expected the id of a sticker of this scene ({present})"
            )
        return replace(self, stickers=left)
