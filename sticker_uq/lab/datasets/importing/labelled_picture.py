# SPDX-License-Identifier: Apache-2.0
"""What every format says: pictures with named objects; and where a picture lies on the disk."""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sticker_uq.io.coco import LONGEST
from sticker_uq.io.images import PICTURE_SUFFIXES, picture_files
from sticker_uq.io.reading import shown
from sticker_uq.scene import InvalidInput

Corners = tuple[float, float, float, float]


@dataclass(frozen=True)
class NamedObject:
    """An object: the name of its class, its box x1, y1, x2, y2, and where it stands in its file, for messages.

    ``fault``: why it has no box; an error unless its class is ignored. ``crowd``: a region of several objects.
    """

    name: str
    box: Corners
    where: str
    fault: str = ""
    crowd: bool = False
    difficult: bool = False


def named_object(
    name: str, where: str, box: Callable[[], Corners], crowd: bool = False, difficult: bool = False
) -> NamedObject:
    try:
        return NamedObject(name, box(), where, "", crowd, difficult)
    except InvalidInput as error:
        return NamedObject(name, (0, 0, 0, 0), where, str(error), crowd, difficult)


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


class PictureFinder:
    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = [root for root in roots if root.is_dir()]
        self._named: defaultdict[str, list[Path]] = defaultdict(list)
        known = set[Path]()
        for root in self._roots:
            for path in picture_files(root, below=True):
                if path.resolve() not in known:
                    known.add(path.resolve())
                    self._named[_key(path.name)].append(path)

    @property
    def pictures(self) -> list[Path]:
        return sorted(path for paths in self._named.values() for path in paths)

    def find(self, name: str, beside: Path | None = None) -> Path:
        """The picture called ``name``, of several the one with the most equal folders before it; ``beside``: its annotations.

        A name may begin with folders of another machine, and lack the suffix of its file. Raises
        InvalidInput when there is none, or no single best one.
        """
        parts = PurePosixPath(name.replace("\\", "/")).parts
        candidates = self._named.get(_key(parts[-1]), []) if parts else []
        candidates = [path for path in candidates if path.name == parts[-1]] or candidates
        if parts and not candidates and not parts[-1].lower().endswith(PICTURE_SUFFIXES):
            candidates = [
                path for suffix in PICTURE_SUFFIXES for path in self._named.get(_key(parts[-1] + suffix), [])
            ]
        if not candidates:
            listed = ", ".join(map(str, self._roots)) or "any folder"
            raise InvalidInput(f"picture {shown(name)} is not below {listed}; give its folder with --images")
        common = [_common_end(path.parts, parts) for path in candidates]
        best = [path for path, count in zip(candidates, common, strict=True) if count == max(common)]
        if len(best) > 1 and beside is not None:
            best = [path for path in best if beside.parent in path.parents] or best
        if len(best) > 1:
            raise InvalidInput(f"picture {shown(name)} may be {best[0]} or {best[1]}; expected a single one")
        return best[0]


def _key(name: str) -> str:
    """What a name of a file is in file systems that ignore case (Windows) or compose letters in another way (macOS)."""
    return unicodedata.normalize("NFC", name).casefold()


def bounding(points: Iterable[tuple[float, float]]) -> Corners:
    x, y = zip(*points, strict=True)
    return min(x), min(y), max(x), max(y)


def number(text: object, name: str) -> float:
    """``text`` as a finite number; InvalidInput, which calls it ``name``, when it is none."""
    try:
        value = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        value = float("nan")
    if not abs(value) <= LONGEST:
        raise InvalidInput(f"{name} {shown(text)}: expected a number")
    return value


def side(text: object, name: str) -> int:
    """``text`` as a side in pixels; InvalidInput, which calls it ``name``, when it is none."""
    value = number(text, name)
    if value < 1 or value != int(value):
        raise InvalidInput(f"{name} {shown(text)}: expected a positive integer")
    return int(value)


def class_name(text: object, where: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"{where}: class {shown(text)}: expected a name")
    return text.strip()


def _common_end(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    pairs = enumerate(zip(reversed(a), reversed(b), strict=False))
    return next((count for count, (one, other) in pairs if one != other), min(len(a), len(b)))
