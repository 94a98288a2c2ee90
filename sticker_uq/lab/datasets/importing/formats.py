# SPDX-License-Identifier: Apache-2.0
"""Which format a source has, and its pictures."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.files import files_in
from sticker_uq.io.reading import MIB, read_bytes, read_json
from sticker_uq.lab.datasets.importing.json_formats import read_coco_files, read_label_studio
from sticker_uq.lab.datasets.importing.labelled_picture import NamedPicture, PictureFinder
from sticker_uq.lab.datasets.importing.xml_formats import read_cvat, read_voc, read_xml
from sticker_uq.lab.datasets.importing.yolo import NAME_LISTS, class_names, names_files, read_yolo
from sticker_uq.scene import InvalidInput

Format = Literal["coco", "voc", "yolo", "cvat", "label-studio"]
FORMATS: tuple[Format, ...] = get_args(Format)
_Reader = Callable[[Sequence[Path], PictureFinder, Faults, LabelCounts], list[NamedPicture]]
_READERS: dict[str, _Reader] = {
    "coco": read_coco_files,
    "voc": read_voc,
    "cvat": read_cvat,
    "label-studio": read_label_studio,
}
_ROOTS: dict[str, Format] = {"annotation": "voc", "annotations": "cvat"}
_FOREIGN = {
    "labelme": ("shapes", "imagePath"),
    "VGG Image Annotator": ("_via_img_metadata",),
    "Supervisely": ("objects", "size"),
}
"""Keys of JSON files of tools that are named, but not read."""
_RESULTS = "detections in COCO's format of results"  # no labels, so that they may lie beside some


def read_source(
    source: Path, wanted: Format | Literal["auto"], images: Path | None, faults: Faults, counts: LabelCounts
) -> tuple[Format, list[NamedPicture]]:
    """The format of ``source``, and its labelled pictures, in the order of the format.

    ``source`` is a folder or a file with annotations; pictures are looked for below it and below ``images``. With "auto" the
    format is that of what is there. Raises InvalidInput for a source without annotations or of several formats; faults of the
    annotations, also a picture that is labelled twice, are added to ``faults``, so that the caller can name them together with
    others. ``counts`` is told what the source declares and what of it is no label.
    """
    if not source.exists():
        raise InvalidInput(f"{source}: no such file or folder")
    if source.suffix.lower() == ".zip":
        raise InvalidInput(f"{source}: is an archive; unpack it and give the folder")
    if images is not None and not images.is_dir():
        raise InvalidInput(f"--images {images}: no such folder")
    files, others = _annotations(source)
    found = {kind: paths for kind, paths in files.items() if kind in FORMATS}
    foreign = {kind: paths for kind, paths in files.items() if kind not in (*FORMATS, _RESULTS)}
    if wanted != "auto":
        chosen = wanted
    elif len(found) == 1:
        (chosen,) = found
        if foreign:
            listed = "; ".join(f"{len(paths)} of {kind}, first {paths[0]}" for kind, paths in foreign.items())
            raise InvalidInput(
                f"{source}: has annotations of {chosen}, and files with labels that are not read: {listed}; convert them, for "
                f"example to COCO, or leave them out with --format {chosen}"
            )
    elif found:
        raise InvalidInput(
            f"{source}: has annotations of {' and '.join(sorted(found))}; choose one with --format"
        )
    else:
        known = [f"{paths[0]} is of {kind}" for kind, paths in (files | others).items()]
        convert = "; export or convert it, for example to COCO" if known else ""
        if source.is_dir() and any(path.suffix == ".txt" for path in files_in(source, below=True)):
            convert += (
                "; YOLO's text files need a data.yaml, classes.txt or obj.names with the names of the classes"
            )
        raise InvalidInput(
            f"{source}: no annotations found; expected one of {', '.join(FORMATS)}{''.join(f'; {one}' for one in known)}{convert}"
        )
    if not found.get(chosen):
        raise InvalidInput(
            f"{source}: no {chosen} annotations found; there are {', '.join(sorted(found)) or 'none'}"
        )
    folder = source if source.is_dir() else source.parent
    finder = PictureFinder([folder, *([images] if images is not None else [])])
    if chosen == "yolo":
        pictures = read_yolo(_single(found[chosen]), folder, finder, faults, counts)
    else:
        pictures = _READERS[chosen](found[chosen], finder, faults, counts)
        named = {picture.path for picture in pictures}
        counts.note(
            "pictures that the annotations do not name", [one for one in finder.pictures if one not in named]
        )
    for kind, paths in (files | others).items():
        if kind != chosen:
            counts.note(f"files of {kind}", paths)
    places: defaultdict[Path, list[str]] = defaultdict(list)
    for picture in pictures:
        places[picture.path].append(picture.where)
    for path, (first, *again) in places.items():
        if again:
            faults.add(
                f"{path}: is labelled {len(again) + 1} times, in {first} and in {again[0]}; expected every picture once: "
                "join its labels in one entry, and remove the others"
            )
    if not pictures:
        faults.refuse()
        raise InvalidInput(f"{source}: no labelled picture in its {chosen} annotations")
    return chosen, pictures


def _annotations(source: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """The files with annotations in ``source`` by format, also of other tools, and the files that may be some.

    InvalidInput for a broken XML, JSON or YAML file: it may hold labels.
    """
    found: defaultdict[str, list[Path]] = defaultdict(list)
    others: defaultdict[str, list[Path]] = defaultdict(list)
    try:
        for path in files_in(source, below=True) if source.is_dir() else [source]:
            suffix = path.suffix.lower()
            kind = _kind(path)
            if kind:
                found[kind].append(path)
            elif suffix == ".txt" and path.parent.name.lower().startswith("labeltxt"):
                found["oriented boxes (labelTxt of DOTA)"].append(path)
            elif suffix in (".xml", ".json", ".csv", ".tfrecord", ".jsonl", ".ndjson"):
                others[f"another kind ({suffix})"].append(path)
        named = names_files(source) if source.is_dir() else []
    except InvalidInput as error:
        raise InvalidInput(f"{error}; it may hold labels: repair it, or take it out of the folder") from None
    if source.is_file() and (source.name in NAME_LISTS or source.suffix in (".yaml", ".yml")):
        named = [source]
    if named:
        found["yolo"] = named
    return dict(found), dict(others)


def _kind(path: Path) -> str:
    if path.suffix.lower() == ".xml":
        return _ROOTS.get(read_xml(path).tag, "")
    if path.suffix.lower() == ".csv":
        with path.open("rb") as stream:
            head = stream.readline(1000)
        return "labels in CSV" if b"xmin" in head or b"region_shape_attributes" in head else ""
    if path.suffix.lower() != ".json":
        return ""
    content = read_json(path)
    if isinstance(content, list):
        tasks = content and all(isinstance(one, dict) for one in content)
        if tasks and all({"image", "annotations"} == set(one) for one in content):
            return "CreateML"
        if tasks and all({"image_id", "bbox"} <= set(one) for one in content):
            return _RESULTS
        return "label-studio" if tasks else ""
    if not isinstance(content, dict):
        return ""
    if {"images", "annotations", "categories"} <= set(content):
        return "coco"
    values = [one for one in content.values() if isinstance(one, dict)]
    if values and all({"filename", "regions"} <= set(one) for one in values):
        return "VGG Image Annotator"
    return next((name for name, keys in _FOREIGN.items() if set(keys) <= set(content)), "")


def _single(files: Sequence[Path]) -> Path:
    first, *others = sorted(files, key=lambda path: path.name in NAME_LISTS)
    content, names = read_bytes(first, MIB), class_names(first)[0]
    for other in others:
        listed = other.name in NAME_LISTS and class_names(other)[0] == names
        if not listed and read_bytes(other, MIB) != content:
            raise InvalidInput(f"{first} and {other} both name classes; give the one that counts as SOURCE")
    return first
