# SPDX-License-Identifier: Apache-2.0
"""What every format says: pictures with named objects; and where a picture lies on the disk."""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sticker_uq.io.coco_entries import LONGEST
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.images import PICTURE_SUFFIXES, picture_files
from sticker_uq.io.reading import show_value
from sticker_uq.scene import InvalidInput

Corners = tuple[float, float, float, float]
READINGS: dict[str, Callable[[float, float, float, float], Corners]] = {
    "corners x1, y1, x2, y2": lambda a, b, c, d: (a, b, c, d),
    "corner and size x, y, width, height": lambda a, b, c, d: (a, b, a + c, b + d),
    "centre and size x, y, width, height": lambda a, b, c, d: (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
}
"""What four numbers of a box may be."""
CORNERS, SIZES, CENTRE = READINGS
UPLOADED = re.compile("[0-9a-f]{8}-(.+)")
"""Label Studio puts eight hex digits and a hyphen before the name of an upload."""


@dataclass(frozen=True)
class NamedObject:
    """An object: the name of its class, its box x1, y1, x2, y2, and where it stands in its file, for messages.

    ``fault``: why it has no box; an error unless its class is ignored, as are ``unknown`` keys. ``crowd``: a region of several
    objects. ``given``: the four numbers of its box as they are written, if they are, and what they are of :data:`READINGS`.
    """

    name: str
    box: Corners
    where: str
    fault: str = ""
    crowd: bool = False
    difficult: bool = False
    unknown: tuple[str, ...] = ()
    given: tuple[Corners, str] | None = None


@dataclass(frozen=True)
class Shape:
    """The box around a shape, the four numbers that it was written as, and unknown keys, see :class:`NamedObject`."""

    box: Corners
    given: tuple[Corners, str] | None = None
    unknown: tuple[str, ...] = ()


def named_object(
    name: object, where: str, shape: Callable[[], Shape], crowd: bool = False, difficult: bool = False
) -> NamedObject:
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"{where}: class {show_value(name)}: expected a name")
    name = unicodedata.normalize("NFC", name.strip())
    try:
        one = shape()
    except InvalidInput as error:
        return NamedObject(name, (0, 0, 0, 0), where, str(error), crowd, difficult)
    return NamedObject(name, one.box, where, "", crowd, difficult, one.unknown, one.given)


@dataclass(frozen=True)
class NamedPicture:
    """A picture with its objects, as a labelling tool describes it.

    ``size`` is its width and height in px as labelled, None when the annotations do not say it; ``where`` it stands in its file,
    for messages; ``laptop``: the one that it shows, "" when the annotations do not say.
    Boxes are in pixels, or ``fractions`` of width and height, 0..1.
    """

    path: Path
    size: tuple[int, int] | None
    objects: tuple[NamedObject, ...]
    where: str
    fractions: bool = False
    laptop: str = ""


@dataclass(frozen=True)
class _Found:
    """A picture that was found by a ``name`` with folders: how many are ``common``, which are ``left``, and whether it begins at
    a root, as on another machine.
    """

    name: str
    left: str
    common: int
    path: Path
    foreign: bool


class PictureFinder:
    """Finds pictures below ``roots``; ``chosen``, if given, is the folder that a person named for them."""

    def __init__(self, roots: Iterable[Path], chosen: Path | None = None) -> None:
        self._roots = [root for root in roots if root.is_dir()]
        self.chosen = chosen
        self._chosen = chosen and chosen.resolve()
        self._named: defaultdict[str, list[Path]] = defaultdict(list)
        self._found: defaultdict[Path, list[_Found]] = defaultdict(list)
        known = set[Path]()
        for root in self._roots:
            for path in picture_files(root, below=True):
                if path.resolve() not in known:
                    known.add(path.resolve())
                    self._named[file_key(path.name)].append(path)

    @property
    def pictures(self) -> list[Path]:
        return sorted(path for paths in self._named.values() for path in paths)

    def find_pictures(self, name: str) -> list[Path]:
        """The pictures whose last name is that of ``name``, which may lack its suffix, or begin as uploads to Label Studio do."""
        last = PurePosixPath(name.replace("\\", "/")).name
        uploaded = UPLOADED.fullmatch(last)
        return self._find_named(last) or (self._find_named(uploaded[1]) if uploaded else [])

    def _find_named(self, last: str) -> list[Path]:
        found = self._named.get(file_key(last), [])
        found = [path for path in found if path.name == last] or found
        if last and not found and not last.lower().endswith(PICTURE_SUFFIXES):
            found = [
                path for suffix in PICTURE_SUFFIXES for path in self._named.get(file_key(last + suffix), [])
            ]
        return found

    def find(self, name: str, beside: Path | None = None) -> Path:
        """The picture called ``name``, of several the one with the most equal folders before it; ``beside``: its annotations.

        A name may begin with folders of another machine, and lack the suffix of its file; :meth:`check` says where they differ.
        Raises InvalidInput when there is none, or no single best one.
        """
        if not (candidates := self.find_pictures(name)):
            listed = ", ".join(map(str, self._roots)) or "any folder"
            raise InvalidInput(
                f"picture {show_value(name)} is not below {listed}; give its folder with --images"
            )
        whole = name.replace("\\", "/")
        folders = tuple(part for part in PurePosixPath(whole).parts[:-1] if part not in (".", ".."))
        common = [_common_end(path.parts[:-1], folders) for path in candidates]
        best = [path for path, count in zip(candidates, common, strict=True) if count == max(common)]
        if len(best) > 1 and beside is not None:
            best = [path for path in best if beside.parent in path.parents] or best
        if len(best) > 1:
            raise InvalidInput(
                f"picture {show_value(name)} may be {best[0]} or {best[1]}; expected a single one"
            )
        if folders:
            left = "/".join(folders[: len(folders) - max(common)])
            foreign = re.match("/|[A-Za-z]:", whole) is not None
            self._found[best[0].parent].append(_Found(name, left, max(common), best[0], foreign))
        return best[0]

    def check(self, named: set[Path], faults: Faults, counts: LabelCounts) -> None:
        """Say where pictures lie in another folder than that of their names; a fault where these folders contradict each other.

        ``named``: all pictures with labels. A name that begins at a root is of another machine.
        """
        where = "has its name and lies in another folder"
        way = "bring the pictures of both, or give --images FOLDER if all labels are of the pictures that lie in it"
        spread: defaultdict[str, list[_Found]] = defaultdict(list)
        for folder, found in self._found.items():
            far = [one for one in found if one.left]
            inner = [one for one in far if not one.foreign]
            for one in inner:
                spread[one.left].append(one)
            closest = max(found, key=lambda one: one.common)
            odd = next((one for one in far if one.common < closest.common), None)
            other = closest if odd else inner[0] if inner else None
            odd = odd or next((one for one in inner if one.left != inner[0].left), None)
            if far and not odd and folder.resolve() != self._chosen:
                if (
                    len(far) == 1
                    and inner
                    and any(p.parent == folder and p not in named for p in self.pictures)
                ):
                    odd, other = inner[0], None  # one label of a folder of others proves nothing
                more = f" and {len(far) - 1} more" if len(far) > 1 else ""
                counts.remarks.append(
                    f"pictures found under another folder: {far[0].name} -> {far[0].path}{more}"
                )
            if odd:
                also = f", as does {other.path} for {other.name}" if other else ""
                faults.add(f"picture {show_value(odd.name)} is not there: {odd.path} {where}{also}", way)
        for ones in spread.values():
            two = next((one for one in ones if one.path.parent != ones[0].path.parent), None)
            if two and not {one.path.parent.resolve() for one in ones} <= {self._chosen}:
                faults.add(
                    f"picture {show_value(two.name)} is not there: {two.path} {where}, and {ones[0].path} for "
                    f"{show_value(ones[0].name)} in another one",
                    way,
                )


def same_name(where: str, key: str, name: str, path: str, finder: PictureFinder) -> None:
    """InvalidInput where ``name`` and ``path``, which stand beside each other, are of two pictures that are both there."""
    last, other = (PurePosixPath(text.replace("\\", "/")).name for text in (name, path))
    two, one = finder.find_pictures(other), finder.find_pictures(last)
    if other and file_key(last) != file_key(other) and two and not set(one) & set(two):
        raise InvalidInput(
            f"{where}: {key} {show_value(name)} and path {show_value(path)} name two pictures that are there; give --ignore-key "
            "path if the first is right"
        )


def file_key(name: str) -> str:
    """What a name of a file is in file systems that ignore case (Windows) or compose letters in another way (macOS)."""
    return unicodedata.normalize("NFC", name).casefold()


def bounding_box(points: Iterable[tuple[float, float]]) -> Corners:
    x, y = zip(*points, strict=True)
    return min(x), min(y), max(x), max(y)


def turn_box(box: Corners, degrees: float, ellipse: bool = False, corner: bool = False) -> Corners:
    """The box around a rectangle, or ``ellipse``, in ``box`` that is turned clockwise around its centre, or upper left corner."""
    x1, y1, x2, y2 = box
    if not degrees:
        return box
    half_x, half_y = (x2 - x1) / 2, (y2 - y1) / 2
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    middle_x, middle_y = x1 + half_x, y1 + half_y
    if corner:
        middle_x, middle_y = x1 + half_x * cosine - half_y * sine, y1 + half_x * sine + half_y * cosine
    along: Callable[[float, float], float] = math.hypot if ellipse else lambda a, b: abs(a) + abs(b)
    across, down = along(half_x * cosine, half_y * sine), along(half_x * sine, half_y * cosine)
    return middle_x - across, middle_y - down, middle_x + across, middle_y + down


def fits(box: Corners, limits: tuple[float, float]) -> bool:
    """Whether ``box`` has an area and lies in a picture of these ``limits`` (1, 1: of fractions), but for rounding."""
    slack = 0.01 if limits == (1, 1) else 1
    x1, y1, x2, y2 = box
    return x1 < x2 <= limits[0] + slack and y1 < y2 <= limits[1] + slack and min(x1, y1) >= -slack


def apart(one: Corners, other: Corners) -> float:
    """How far the sides of two boxes differ at most, beyond what rounding and the width of a line explain; 0 if by no more."""
    longest = max(one[2] - one[0], one[3] - one[1])
    most = max(abs(a - b) for a, b in zip(one, other, strict=True))
    return most if most > max(4, 0.05 * longest) else 0


def number(text: object, name: str) -> float:
    """``text`` as a finite number; InvalidInput, which calls it ``name``, when it is none."""
    try:
        value = float("nan" if isinstance(text, bool) else text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        value = float("nan")
    if not abs(value) <= LONGEST:
        raise InvalidInput(f"{name} {show_value(text)}: expected a number")
    return value


def sides(
    width: object, height: object, where: str, empty: tuple[object, ...] = (None,)
) -> tuple[int, int] | None:
    """Width and height in px, None where both are ``empty``; InvalidInput for what is no side."""
    if width in empty and height in empty:
        return None
    return side(width, f"{where}: width"), side(height, f"{where}: height")


def side(text: object, name: str) -> int:
    """``text`` as a side in pixels; InvalidInput, which calls it ``name``, when it is none."""
    value = number(text, name)
    if value < 1 or value != int(value):
        raise InvalidInput(f"{name} {show_value(text)}: expected a positive integer")
    return int(value)


def _common_end(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    pairs = enumerate(zip(reversed(a), reversed(b), strict=False))
    return next((count for count, (one, other) in pairs if one != other), min(len(a), len(b)))
