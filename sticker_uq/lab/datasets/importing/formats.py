# SPDX-License-Identifier: Apache-2.0
"""Which format a source has, and its pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

from sticker_uq.io.faults import Faults
from sticker_uq.io.reading import read_json
from sticker_uq.lab.datasets.importing.coco_files import read_coco_files
from sticker_uq.lab.datasets.importing.cvat import read_cvat
from sticker_uq.lab.datasets.importing.label_studio import read_label_studio
from sticker_uq.lab.datasets.importing.labelled_picture import NamedPicture, PictureFinder, files_below
from sticker_uq.lab.datasets.importing.voc import read_voc
from sticker_uq.lab.datasets.importing.xml_files import read_xml
from sticker_uq.lab.datasets.importing.yolo import NAME_LISTS, names_files, read_yolo
from sticker_uq.scene import InvalidInput

Format = Literal["coco", "voc", "yolo", "cvat", "label-studio"]
FORMATS: tuple[Format, ...] = get_args(Format)
_Reader = Callable[[Sequence[Path], PictureFinder, Faults], list[NamedPicture]]
_READERS: dict[Format, _Reader] = {
    "coco": read_coco_files,
    "voc": read_voc,
    "cvat": read_cvat,
    "label-studio": read_label_studio,
    "yolo": lambda files, finder, faults: read_yolo(_single(files), finder, faults),
}
_ROOTS: dict[str, Format] = {"annotation": "voc", "annotations": "cvat"}


def read_source(
    source: Path,
    wanted: Format | Literal["auto"] = "auto",
    images: Path | None = None,
    faults: Faults | None = None,
) -> tuple[Format, list[NamedPicture]]:
    """The tool's format of ``source`` to import, and its labelled pictures, in the order of the format.

    ``source`` is a folder or a file with annotations; pictures are looked for below it and below ``images``. With "auto" the
    format is that of what is there. Raises InvalidInput for a source without annotations or of several formats, and naming all
    faults of the annotations, also a picture that is labelled twice. With ``faults`` they are added there instead, so that
    the caller can name them together with others.
    """
    if not source.exists():
        raise InvalidInput(f"{source}: no such file or folder")
    if source.suffix.lower() == ".zip":
        raise InvalidInput(f"{source}: is an archive; unpack it and give the folder")
    if images is not None and not images.is_dir():
        raise InvalidInput(f"--images {images}: no such folder")
    found = _annotations(source)
    if wanted != "auto":
        chosen = wanted
    elif len(found) == 1:
        (chosen,) = found
    elif found:
        raise InvalidInput(
            f"{source}: has annotations of {' and '.join(sorted(found))}; choose one with --format"
        )
    else:
        raise InvalidInput(f"{source}: no annotations found; expected one of {', '.join(FORMATS)}")
    if not found.get(chosen):
        raise InvalidInput(
            f"{source}: no {chosen} annotations found; there are {', '.join(sorted(found)) or 'none'}"
        )
    folder = source if source.is_dir() else source.parent
    finder = PictureFinder([folder, *([images] if images is not None else [])])
    refuse = faults is None
    faults = Faults(str(source)) if faults is None else faults
    pictures = _READERS[chosen](found[chosen], finder, faults)
    seen: dict[Path, int] = {}
    for picture in pictures:
        seen[picture.path] = seen.get(picture.path, 0) + 1
    for path, count in seen.items():
        if count > 1:
            faults.add(f"{path}: is labelled {count} times; expected every picture once")
    if refuse or not pictures:
        faults.refuse()
    if not pictures:
        raise InvalidInput(f"{source}: no labelled picture in its {chosen} annotations")
    return chosen, pictures


def _annotations(source: Path) -> dict[Format, list[Path]]:
    """The files with annotations in ``source``, by format."""
    found: defaultdict[Format, list[Path]] = defaultdict(list)
    files = files_below(source) if source.is_dir() else [source]
    for path in files:
        kind = _kind(path, sure=source.is_file())
        if kind is not None:
            found[kind].append(path)
    named = names_files(source) if source.is_dir() else []
    if source.is_file() and (source.name in NAME_LISTS or source.suffix in (".yaml", ".yml")):
        named = [source]
    if named:
        found["yolo"] = named
    return dict(found)


def _kind(path: Path, sure: bool) -> Format | None:
    """The format of an XML or JSON file, None for another file; a broken one is an error if it is ``sure`` to be wanted."""
    try:
        if path.suffix.lower() == ".xml":
            return _ROOTS.get(read_xml(path).tag)
        if path.suffix.lower() == ".json":
            content = read_json(path)
            if isinstance(content, list):
                return "label-studio" if content and all(isinstance(one, dict) for one in content) else None
            return (
                "coco"
                if isinstance(content, dict) and {"images", "annotations", "categories"} <= set(content)
                else None
            )
    except InvalidInput:
        if sure or path.suffix.lower() == ".xml":
            raise
    return None


def _single(files: Sequence[Path]) -> Path:
    """The file with the names of the classes: the YAML file before a list."""
    described = [path for path in files if path.name not in NAME_LISTS]
    chosen = described or list(files)
    if len(chosen) > 1:
        raise InvalidInput(
            f"{chosen[0]} and {chosen[1]} both name classes; give the one that counts as SOURCE"
        )
    return chosen[0]
