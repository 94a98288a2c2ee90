# SPDX-License-Identifier: Apache-2.0
"""The parts of a labelled data set: to learn from, to calibrate on and to test on, without a common laptop."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sticker_uq.io.coco import ANNOTATIONS, EncodedScene, LabelledImage, write_coco
from sticker_uq.io.files import whole_folder
from sticker_uq.io.images import MOST_PICTURE
from sticker_uq.io.reading import read_bytes
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.datasets.checking import PictureStatistics, close_pairs, duplicates
from sticker_uq_lab.datasets.importing.grouping import PARTS, laptops_of, split_groups

_SHOWN = 3


def parts_in(folder: Path) -> dict[str, Path]:
    return {name: folder / name for name in PARTS}


def parts_of(folder: Path) -> dict[str, Path] | None:
    """The parts in ``folder``, None for a COCO folder; :class:`InvalidInput` otherwise."""
    if (folder / ANNOTATIONS).is_file():
        return None
    missing = [name for name in PARTS if not (folder / name / ANNOTATIONS).is_file()]
    if missing:
        raise InvalidInput(
            f"{folder}: expected a COCO folder ({ANNOTATIONS}), or {', '.join(PARTS)} as `sticker-uq dataset import --split` "
            f"writes them; {missing[0]}/{ANNOTATIONS} is missing"
        )
    return parts_in(folder)


def fingerprint(items: Iterable[LabelledImage]) -> str:
    """SHA-256 of the files, labels and laptops of ``items``, hex."""
    whole = hashlib.sha256()
    for item in items:
        whole.update(f"{item.path.name}\0{item.workpiece_id}\0".encode())
        whole.update(hashlib.sha256(read_bytes(item.path, MOST_PICTURE)).digest())
        whole.update(item.boxes.tobytes() + item.labels.tobytes())
    return whole.hexdigest()


def divide(
    seen: Sequence[PictureStatistics], out: Path, shares: Sequence[float], near: int, seed: int
) -> dict[str, Path]:
    """Write the pictures ``seen`` to three parts in ``out``, COCO folders, all pictures of a laptop to the same one.

    Pictures are of one laptop when the annotations say so, or when they are near duplicates (hashes that differ in at most
    ``near`` bits; -1: not these). Laptops without stickers are divided by the same shares. :class:`InvalidInput` for too few.
    """
    items = [one.item for one in seen]
    alike = [(a, b) for a, b, _ in close_pairs(seen, near)]
    names, titles = [item.workpiece_id for item in items], [item.path.stem for item in items]
    groups, laptops = laptops_of(names, alike, titles)
    clean = [not (item.labels == ObjectClass.STICKER).any() for item in items]
    chosen = split_groups(groups, shares, seed, clean)
    if not out.exists() or not any(out.iterdir()):
        with whole_folder(out) as folder:
            for number, name in enumerate(PARTS):
                numbers = [index for index, part in enumerate(chosen) if part == number]
                write_part(folder / name, [items[n] for n in numbers], [laptops[n] for n in numbers])
    return parts_in(out)


def write_part(folder: Path, items: Sequence[LabelledImage], laptops: Sequence[str]) -> None:
    """Copy ``items`` into a new COCO folder, with the laptop of each, "" where none is known."""
    used = Counter(item.path.stem for item in items)

    def encode(number: int, item: LabelledImage) -> EncodedScene:
        stem, data = item.path.stem, read_bytes(item.path, MOST_PICTURE)
        seen = (item.width, item.height, item.boxes, item.labels)
        laptop = {"workpiece_id": laptops[number]} if laptops[number] else {}
        name = stem if used[stem] == 1 else f"{number:06d}_{stem}"
        return EncodedScene(number, item.path.suffix[1:], data, *seen, image_fields=laptop, name=name)

    write_coco(folder, (encode(n, item) for n, item in enumerate(items)), description="Part of a data set")


def refuse_same_pixels(parts: Mapping[str, Sequence[PictureStatistics]]) -> None:
    """Raise :class:`InvalidInput` for parts with the same picture, which would make a proof or a test void."""
    known: dict[bytes, str] = {}
    same = []
    for part, pictures in parts.items():
        for one in pictures:
            name = f"{part}/{one.item.path.name}" if part else one.item.path.name
            before = known.setdefault(one.pixels, name)
            if before != name:
                same.append(f"{name} and {before}")
    if same:
        more = f" and {len(same) - _SHOWN} more" if len(same) > _SHOWN else ""
        raise InvalidInput(
            f"{'; '.join(same[:_SHOWN])}{more}: have the same pixels, expected every picture once; remove one of them, or "
            "import again (`sticker-uq dataset import` leaves copies out)"
        )


def near_in_two_parts(parts: Mapping[str, Sequence[PictureStatistics]], near: int) -> list[str]:
    names = list(parts)
    found = []
    for index, part in enumerate(names):
        for other in names[index + 1 :]:
            for one in duplicates(parts[part], parts[other], near):
                a, b = (path.name for path in one.pictures)
                found.append(f"{part}/{a} and {other}/{b}: {one.text}")
    return found
