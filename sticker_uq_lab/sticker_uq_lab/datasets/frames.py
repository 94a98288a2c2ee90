# SPDX-License-Identifier: Apache-2.0
"""Frames of a recording that are worth labelling, some time apart and different from the last one; and pictures that follow each
other, whose names differ only in a number.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.io.sources import SourceImage

CLOSE = 30
"""Numbers apart at which frames count as close to each other: a second of a camera with 30 images per second."""
LIKE = "like "
"""Begins the name of a laptop that was made up from the name of one of its pictures."""
_PARTS = {"images", "train", "valid", "val", "test"}
"""Folders that say nothing about the video: tools put its frames into several of them."""
_ADDED = re.compile(r"^[0-9a-f]{8}-|\.rf\.[0-9A-Za-z]+$")
"""What Label Studio puts before a name, and Roboflow after it."""
_NUMBER = re.compile(r"[0-9]+")
_LONGEST = 18


def place_in_video(name: str) -> tuple[str, int] | None:
    """The name without suffix, folders of a split, what tools add and its last number, and that number; None without one."""
    path = PurePosixPath(name)
    stem = plain_stem(path)
    numbers = list(_NUMBER.finditer(stem))
    if not numbers or len(numbers[-1][0]) > _LONGEST:
        return None
    start, end = numbers[-1].span()
    folders = [part for part in path.parent.parts if part.lower() not in _PARTS]
    return "/".join([*folders, f"{stem[:start]}#{stem[end:]}"]), int(numbers[-1][0])


def plain_stem(path: PurePosixPath) -> str:
    return _ADDED.sub("", path.stem)


def consecutive_pairs(names: Sequence[str], within: int) -> list[tuple[int, int]]:
    """Pairs of the numbered pictures ``names``, each with the one before it, if their numbers differ by at most ``within``."""
    return [
        (first, second)
        for places in _by_video(names).values()
        for (before, first), (after, second) in pairwise(places)
        if after - before <= within and within > 0
    ]


def close_frames(first: Sequence[str], second: Sequence[str], within: int) -> list[tuple[int, int, int]]:
    """The frames of ``first`` with one of ``second`` at most ``within`` numbers away: both indices and how far it is."""
    found = []
    theirs = _by_video(second)
    for index, name in enumerate(first):
        place = place_in_video(name)
        others = theirs.get(place[0], []) if place else []
        if place is None or not others:
            continue
        at = bisect_left(others, (place[1], 0))
        nearest = min(others[max(at - 1, 0) : at + 1], key=lambda one: abs(one[0] - place[1]))
        if abs(nearest[0] - place[1]) <= within:
            found.append((index, nearest[1], abs(nearest[0] - place[1])))
    return found


def close_frames_text(count: int, of: int, within: int = CLOSE) -> str:
    return f"{count} of {of} pictures have a name that differs by at most {within} in its number from one"


def video_name(name: str, laptop: str) -> str:
    """``name`` of a frame of ``laptop``, or "" where the laptop's given name has the number: it then numbers no frames."""
    place = place_in_video(name)
    given = "" if laptop.startswith(LIKE) else laptop
    numbers = {int(number[0]) for number in _NUMBER.finditer(given) if len(number[0]) <= _LONGEST}
    return "" if place is None or place[1] in numbers else name


def _by_video(names: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, name in enumerate(names):
        place = place_in_video(name)
        if place is not None:
            found[place[0]].append((place[1], index))
    return {video: sorted(places) for video, places in found.items()}


_WIDTH = 64  # px of the pictures that are compared; the noise of the camera averages out


def choose_frames(
    source: Iterable[SourceImage], every_s: float, min_motion: float
) -> Iterator[tuple[SourceImage, bool]]:
    """Every frame of ``source``, and whether it is chosen.

    Chosen are the first frame, and those at least ``every_s`` seconds after the last chosen one whose mean absolute difference
    from it, in grey levels of small copies, is at least ``min_motion``. A clock that goes back starts anew.
    """
    last: tuple[int, npt.NDArray[np.int16]] | None = None
    for picture in source:
        soon = last is not None and 0 <= picture.stamp_ns - last[0] < every_s * 1e9
        if picture.image is not None and not soon:
            height = max(1, round(picture.image.shape[0] * _WIDTH / picture.image.shape[1]))
            small = cv2.resize(picture.image, (_WIDTH, height), interpolation=cv2.INTER_AREA)
            small = cv2.cvtColor(small, cv2.COLOR_BGR2GRAY).astype(np.int16)
            if last is None or last[1].shape != small.shape or np.abs(small - last[1]).mean() >= min_motion:
                last = picture.stamp_ns, small
                yield picture, True
                continue
        yield picture, False


def file_name(picture: SourceImage, workpieces: Sequence[tuple[int, str]], image_format: str) -> str:
    """The file name of a frame: its number, after that of the laptop if ``workpieces`` (time in ns, name) tell it."""
    before = bisect_right(workpieces, picture.stamp_ns, key=lambda announced: announced[0])
    laptop = f"laptop{before:04d}_" if before else ""
    return f"{laptop}{picture.name}.{image_format}"
