# SPDX-License-Identifier: Apache-2.0
"""From named pictures to COCO folders: upright pixels, known classes, groups of one laptop, parts without a common laptop."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sticker_uq.io.coco import EncodedScene, LabelledImage, encode_picture, with_objects, write_coco
from sticker_uq.io.coco_entries import IGNORE, OWN_NAMES, box_fault, clip_box
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.files import atomic_write, whole_folder, write_file
from sticker_uq.io.images import MOST_PICTURE, read_image_file
from sticker_uq.io.reading import read_bytes
from sticker_uq.io.stored_pictures import orientation_of
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.checking import PictureStatistics, close_pairs, statistics_of
from sticker_uq_lab.datasets.frames import consecutive_pairs
from sticker_uq_lab.datasets.importing.grouping import PARTS, laptops_of, names_by_pattern, split_groups
from sticker_uq_lab.datasets.importing.named_picture import (
    READINGS,
    Corners,
    NamedObject,
    NamedPicture,
    fits,
)
from sticker_uq_lab.datasets.importing.nets import SHEET, contact_sheet
from sticker_uq_lab.datasets.importing.orientation import (
    FRAMES,
    Frame,
    proven_frame,
    shown_box,
    shown_size,
)
from sticker_uq_lab.datasets.importing.schemas import unknown_key

REST = "rest"
"""In --ignore: every class that is not named otherwise."""
_TARGETS = (*OWN_NAMES, IGNORE)


def class_mapping(given: Sequence[str], ignored: Sequence[str]) -> dict[str, str]:
    """The meaning, "logo", "sticker" or "ignore", of class names in lower case, from NAME=MEANING and names to ignore.

    Raises InvalidInput for another meaning and for a name with two of them.
    """
    pairs = [(f"--class {text!r}", *text.rpartition("=")[::2]) for text in given]
    pairs += [(f"--ignore {name!r}", name, IGNORE) for name in ignored]
    mapping: dict[str, str] = {}
    for option, name, meaning in pairs:
        key, word = unicodedata.normalize("NFC", name.strip().lower()), meaning.strip().lower()
        if not key or word not in _TARGETS:
            raise InvalidInput(f"{option}: expected NAME=one of {', '.join(_TARGETS)}")
        if mapping.setdefault(key, word) != word:
            raise InvalidInput(
                f"{option}: {name.strip()!r} is given as {mapping[key]} too; expected one meaning"
            )
    return mapping


def complete_mapping(pictures: Sequence[NamedPicture], mapping: Mapping[str, str]) -> dict[str, str]:
    """The meaning of every class name that occurs in ``pictures``; "logo" and "sticker" mean what they say.

    Raises InvalidInput listing classes without a meaning, with their numbers of objects, and names that do not occur.
    """
    counts = Counter(one.name for picture in pictures for one in picture.objects)
    if not counts:
        raise InvalidInput(
            f"none of {len(pictures)} pictures has a label; CVAT leaves polygons and turned boxes out of YOLO and VOC files, "
            "Label Studio polygons out of VOC files: export CVAT for images, or Label Studio's JSON"
        )
    rest = REST in mapping and mapping[REST] == IGNORE and REST not in {name.lower() for name in counts}
    known = {**{name: name for name in OWN_NAMES}, **mapping}
    named = {name: known.get(name.lower(), IGNORE if rest else "") for name in counts}
    missing = [name for name, meaning in named.items() if not meaning]
    if missing:
        listed = ", ".join(f"{printable(name)!r} ({counts[name]} objects)" for name in sorted(missing)[:20])
        more = f" and {len(missing) - 20} more" if len(missing) > 20 else ""
        raise InvalidInput(
            f'{len(missing)} of {len(counts)} classes have no meaning: {listed}{more}; give --class "{printable(min(missing))}='
            f'sticker" (or logo, ignore) for each, or --ignore {REST}'
        )
    unused = set(mapping) - {name.lower() for name in counts} - ({REST} if rest else set())
    if unused:
        listed = ", ".join(sorted(map(printable, counts))[:20]) or "none"
        raise InvalidInput(f"class {min(unused)!r} does not occur; classes there: {listed}")
    return named


RECORD = "import.yaml"
_HINT = (
    "--repair clips boxes to their picture or leaves them out, and leaves out pictures that cannot be read"
)
_KEPT_AS_IS = {".jpg": "jpg", ".jpeg": "jpg", ".png": "png"}


@dataclass(frozen=True)
class UprightPicture:
    """A picture as shown: ``labelled_image`` has its size, boxes and classes, ``statistics`` its pixels' digest and hash.

    ``name`` is its path in the source; ``turned``: its EXIF orientation is applied when it is written.
    """

    name: str
    statistics: PictureStatistics
    turned: bool

    @property
    def labelled_image(self) -> LabelledImage:
        return self.statistics.item


@dataclass(frozen=True)
class Grouped:
    pictures: tuple[UprightPicture, ...]
    groups: tuple[int, ...]
    laptops: tuple[str, ...]  # the name of the laptop of each picture, "" for one that is alone and not named
    copies: tuple[tuple[str, str], ...]
    """Names of pictures with the same pixels: the one left out, the one kept."""


@dataclass
class Reader:
    """Reads every picture once, with boxes in the orientation as shown.

    ``named``: the meaning of each class name, as of :func:`complete_mapping`; names of pictures are relative to ``root``. With
    ``repair`` boxes are clipped to their picture, and left out when nothing of them is inside, and so are pictures that cannot be
    decoded; ``changes`` tells it, one line each. ``faults`` has those of the annotations; ``counts`` is told what became of the
    objects. ``crowd_is_object``: a region of several objects counts as one object.
    """

    root: Path
    named: Mapping[str, str]
    faults: Faults
    counts: LabelCounts
    frame: Frame = "auto"
    repair: bool = False
    crowd_is_object: bool = False
    changes: list[str] = field(default_factory=list)
    _unknown: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _fitting: Counter[str] = field(default_factory=Counter)
    _boxes: int = 0
    _reading: str = ""

    def read(
        self, pictures: Sequence[NamedPicture], progress: Callable[[], None] = lambda: None
    ) -> list[UprightPicture]:
        seen = list[tuple[PictureStatistics, int] | InvalidInput]()
        proofs: defaultdict[str, list[Path]] = defaultdict(list)
        for number, picture in enumerate(pictures):
            try:
                statistics, orientation = self._read_statistics(picture, number)
                seen.append((statistics, orientation))
            except InvalidInput as error:
                seen.append(error)
            else:
                size = shown_size(orientation, (statistics.item.width, statistics.item.height))
                with self.faults.collect(), about(picture.path):
                    proofs[proven_frame(orientation, size, picture.size)].append(picture.path)
            progress()
        frame = self._frame(proofs)
        found = []
        for picture, one in zip(pictures, seen, strict=True):
            if not isinstance(one, InvalidInput):
                found.append(self._upright(picture, *one, frame))
                continue
            self.counts.left_out["with a picture that cannot be read"] += len(picture.objects)
            if self.repair:
                self.changes.append(f"{one}: picture left out, with its labels")
            else:
                self.faults.add(str(one), _HINT)
        self._tell_contradictions()
        self.faults.refuse()
        if not found:
            first = self.changes[0]
            raise InvalidInput(f"{self.root}: none of {len(pictures)} pictures can be read; first {first}")
        return found

    def _frame(self, proofs: Mapping[str, Sequence[Path]]) -> Frame:
        """What the sizes of some pictures prove holds for all of their source."""
        uncertain = proofs.get("auto", ())
        if self.frame != "auto" or not uncertain:
            return self.frame
        known = [frame for frame in FRAMES if frame in proofs]
        if len(known) == 1:
            return known[0]
        said = (
            " and ".join(f"{proofs[one][0]} was labelled as {one}" for one in known)
            or "no labelled size tells it"
        )
        self.faults.add(
            f"{len(uncertain)} pictures have an EXIF orientation, first {uncertain[0]}, and their boxes may count the pixels "
            f"as shown or as stored ({said}): look at one of them, and give --orientation shown or stored"
        )
        return "shown"

    def _read_statistics(self, picture: NamedPicture, number: int) -> tuple[PictureStatistics, int]:
        """The pixels' digest of ``picture``, without objects, and its orientation."""
        image = read_image_file(picture.path)
        size = (image.shape[1], image.shape[0])
        with about(picture.path):
            orientation, stored = orientation_of(read_bytes(picture.path, MOST_PICTURE))
            if size != shown_size(orientation, stored):
                raise InvalidInput(
                    f"its EXIF orientation {orientation} cannot be applied; turn the picture itself"
                )
        empty = LabelledImage(
            picture.path, number, *size, np.zeros((0, 4), np.float32), np.zeros(0, np.int64), picture.laptop
        )
        return statistics_of(empty, image), orientation

    def _upright(
        self, picture: NamedPicture, seen: PictureStatistics, orientation: int, frame: Frame
    ) -> UprightPicture:
        size = (seen.item.width, seen.item.height)
        stored = shown_size(orientation, size)
        as_stored = orientation != 1 and (
            picture.size == stored if picture.size is not None and stored != size else frame == "stored"
        )
        across, down = (stored if as_stored else size) if picture.fractions else (1, 1)
        objects, crowd = list[tuple[Corners, int]](), list[tuple[Corners, int]]()
        for one in picture.objects:
            label = OWN_NAMES.get(self.named[one.name])
            if label is None:
                self.counts.ignored[one.name] += 1
                continue
            for key in one.unknown:
                self._unknown[key].append(one.where)
            if one.fault:
                self.faults.add(one.fault)
                continue
            x1, y1, x2, y2 = one.box
            box = (x1 * across, y1 * down, x2 * across, y2 * down)
            limits = (1.0, 1.0) if picture.fractions else (stored if as_stored else size)
            self._compare(one, limits)
            if not picture.fractions and max(box) <= 1:
                self.faults.add(
                    f"{one.where}: box {list(box)} lies within 0..1: fractions of the picture? expected pixels"
                )
                continue
            within = self._inside(shown_box(orientation, stored, box) if as_stored else box, size, one.where)
            if within is not None:
                several = one.crowd and not self.crowd_is_object
                (crowd if several else objects).append((within, int(label)))
                self.counts.difficult += one.difficult
        item = with_objects(seen.item, objects, crowd)
        inside = self.root in picture.path.parents
        name = (picture.path.relative_to(self.root) if inside else Path(picture.path.name)).as_posix()
        return UprightPicture(name, replace(seen, item=item), orientation != 1)

    def _compare(self, one: NamedObject, limits: tuple[float, float]) -> None:
        """Count which readings of the four numbers of a box fit in its picture of these ``limits``."""
        if one.given is not None:
            numbers, self._reading = one.given
            self._boxes += 1
            for name, reading in READINGS.items():
                self._fitting[name] += fits(reading(*numbers), limits)

    def _tell_contradictions(self) -> None:
        better = [name for name in READINGS if self._boxes and self._fitting[name] == self._boxes]
        if better and self._reading not in better:
            self.faults.add(
                f"{self._boxes - self._fitting[self._reading]} of {self._boxes} boxes do not fit in their pictures when read as "
                f"{self._reading}; as {better[0]} all would: write them as this format has them"
            )
        for key, places in self._unknown.items():
            self.faults.add(unknown_key("labels", key, len(places), places[0]))

    def _inside(self, box: Sequence[float], size: tuple[int, int], where: str) -> Corners | None:
        x1, y1, x2, y2 = box
        coco = [x1, y1, x2 - x1, y2 - y1]
        fault = box_fault(coco, *size)
        within = clip_box(coco, *size) if min(coco[2:]) > 0 else None
        if fault and self.repair:
            self.changes.append(f"{where}: {'left out' if within is None else 'clipped'}: {fault}")
            self.counts.left_out["outside its picture or without area"] += within is None
        elif fault:
            self.faults.add(f"{where}: {fault}", _HINT)
        return within


@contextmanager
def about(path: Path) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def group_pictures(
    pictures: Sequence[UprightPicture],
    near: int,
    pattern: str | None = None,
    consecutive: int = 0,
    changes: list[str] | None = None,
) -> Grouped:
    """``pictures`` without copies, with the laptop of each: what ``pattern`` finds in its name, without one what the annotations
    say; near duplicates are of one laptop, and frames whose numbers differ by at most ``consecutive`` from the one before.

    The perceptual hashes of near duplicates differ in at most ``near`` bits; -1: near duplicates are not joined. Pictures with
    the same pixels and other objects are left out and told in ``changes``; without it InvalidInput is raised for them, as for
    all that :func:`names_by_pattern` refuses.
    """
    ordered = sorted(pictures, key=lambda one: one.name)
    faults = Faults("pictures with the same pixels")
    first: dict[bytes, UprightPicture] = {}
    contradicting = set[bytes]()
    copies = []
    for one in ordered:
        known = first.setdefault(one.statistics.pixels, one)
        if known is one:
            continue
        if _objects(known.labelled_image) != _objects(one.labelled_image):
            text = f"{one.name} and {known.name} have other objects"
            contradicting.add(one.statistics.pixels)
            if changes is None:
                faults.add(f"{text}; correct or remove one", "--repair leaves out both")
            else:
                changes.append(f"{text}: both left out")
            continue
        copies.append((one.name, known.name))
    faults.refuse()
    kept = [one for pixels, one in first.items() if pixels not in contradicting]
    pairs = [(a, b) for a, b, _ in close_pairs([one.statistics for one in kept], near)] if near >= 0 else []
    pairs += consecutive_pairs([one.name for one in kept], consecutive)
    names = [one.labelled_image.workpiece_id for one in kept]
    if pattern is not None:
        names = names_by_pattern([one.name for one in kept], pattern)
    groups, laptops = laptops_of(names, pairs, [one.name for one in kept])
    return Grouped(tuple(kept), tuple(groups), tuple(laptops), tuple(copies))


def _objects(item: LabelledImage) -> list[tuple[float, ...]]:
    boxes, labels = (
        np.concatenate(pair).tolist() for pair in ((item.boxes, item.crowd), (item.labels, item.crowd_labels))
    )
    crowd = [False] * len(item.labels) + [True] * len(item.crowd_labels)
    return sorted((*box, label, several) for box, label, several in zip(boxes, labels, crowd, strict=True))


def write_import(
    out: Path,
    data: Grouped,
    record: Mapping[str, Any],
    shares: Sequence[float] | None = None,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, list[int]]:
    """Write ``out``, whole or not at all: a COCO folder, or one for each part with a share; returns the pictures of each part.

    ``record`` is kept in import.yaml. The parts are those of :func:`split_groups`; without ``shares`` there is one, "".
    """
    parts = {"": list(range(len(data.pictures)))}
    if shares is not None:
        clean = [not one.labelled_image.shows_sticker for one in data.pictures]
        chosen = split_groups(data.groups, shares, seed, clean)
        parts = {
            name: [index for index, part in enumerate(chosen) if part == number]
            for number, name in enumerate(PARTS)
            if shares[number] > 0
        }
    with whole_folder(out) as folder:
        for name, numbers in parts.items():
            write_coco(
                folder / name,
                (_encode(data, index, progress) for index in numbers),
                description=f"Imported from {record.get('source', '')}",
            )
        sheet = contact_sheet([one.labelled_image for one in data.pictures])
        write_file(folder / SHEET, encode_picture(sheet))
        with atomic_write(folder / RECORD, "w") as stream:
            yaml.safe_dump(dict(record), stream, sort_keys=False, allow_unicode=True)
    return parts


def _encode(data: Grouped, index: int, progress: Callable[[], None]) -> EncodedScene:
    one = data.pictures[index]
    item = one.labelled_image
    image_format = _KEPT_AS_IS.get(item.path.suffix.lower())
    if image_format is None or one.turned:
        image_format = image_format or "png"
        content = encode_picture(read_image_file(item.path), image_format)
    else:
        content = read_bytes(item.path, MOST_PICTURE)
    progress()
    about = {"source_name": one.name} | ({"workpiece_id": name} if (name := data.laptops[index]) else {})
    seen = (item.width, item.height, item.boxes, item.labels)
    return EncodedScene(
        index, image_format, content, *seen, about, crowd=item.crowd, crowd_labels=item.crowd_labels
    )
