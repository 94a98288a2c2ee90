# SPDX-License-Identifier: Apache-2.0
"""Which format a source has, and its pictures."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.files import files_in
from sticker_uq.io.images import PICTURE_SUFFIXES
from sticker_uq.io.reading import MIB, read_bytes, read_json
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing import schemas
from sticker_uq_lab.datasets.importing.json_formats import is_task, read_coco_files, read_label_studio
from sticker_uq_lab.datasets.importing.named_picture import NamedPicture, PictureFinder, file_key
from sticker_uq_lab.datasets.importing.xml_formats import read_cvat, read_voc, read_xml
from sticker_uq_lab.datasets.importing.yolo import (
    NAME_LISTS,
    YOLO_TEXTS,
    class_names,
    names_files,
    read_yolo,
    text_with_labels,
)

Format = Literal["coco", "voc", "yolo", "cvat", "label-studio"]
FORMATS: tuple[Format, ...] = get_args(Format)
_Reader = Callable[[Sequence[Path], PictureFinder, Faults, LabelCounts, schemas.Keys], list[NamedPicture]]
_READERS: dict[str, _Reader] = {
    "coco": read_coco_files,
    "voc": read_voc,
    "cvat": read_cvat,
    "label-studio": read_label_studio,
}
_ROOTS: dict[str, Format] = {"annotation": "voc", "annotations": "cvat"}
_FOREIGN: dict[str, tuple[str, ...]] = {
    "labelme": ("shapes", "imagePath"),
    "VGG Image Annotator": ("_via_img_metadata",),
    "VGG Image Annotator 3": ("metadata", "file", "view"),
    "Supervisely": ("objects", "size"),
    "CreateML": ("image", "annotations"),
    "CreateML ": ("imagefilename", "annotation"),
    "Labelbox": ("Labeled Data",),
    "Labelbox ": ("data_row", "projects"),
    "Scale": ("task_id", "params"),
    "Label Studio before 1.0": ("data", "completions"),
    "VoTT": ("asset", "regions"),
    "VoTT ": ("assets", "tags"),
    "Datumaro": ("items", "categories"),
    "FiftyOne": ("samples",),
    "Edge Impulse": ("boundingBoxes",),
    "COCO without categories": ("images", "annotations"),
}
"""Keys of objects, or of all in a list, of tools that are named, but not read."""
_RESULTS = "detections in COCO's format of results"  # no labels, so that they may lie beside some
_BINARY = (".tfrecord", ".tfrecords", ".record", ".parquet", ".arrow", ".mat", ".h5", ".hdf5")
_NO_DATA = (
    *PICTURE_SUFFIXES, ".md", ".rst", ".html", ".htm", ".py", ".ipynb", ".js", ".sh", ".log", ".svg", ".yaml", ".yml"
)  # fmt: skip
"""Files that may show labels as an example, and hold none."""
_LIKE_LABELS = re.compile(
    r"b_?box|bnd_?box|bounding_?boxe?s?(_xy\w+)?|boxe?s|points|polygons?|segmentations?|shapes|regions|objects|annotations?|"
    r"coordinates|vertices|rect(angle)?|[xy]_?min|xtl|labelled_?objects",
    re.I,
)
_HEAD = re.compile(
    r"\b(x_?min|x_?1|left|bbox|box|polygon|points|x_?cent(er|re)|region_shape_attributes)\b", re.I
)
"""Of a table with labels."""


def read_source(
    source: Path,
    wanted: Format | Literal["auto"],
    images: Path | None,
    faults: Faults,
    counts: LabelCounts,
    ignored: Sequence[str] = (),
) -> tuple[Format, list[NamedPicture]]:
    """The format of ``source``, and its labelled pictures, in the order of the format.

    ``source`` is a folder or a file with annotations; pictures are looked for below it and below ``images``. With "auto" the
    format is that of what is there. Raises InvalidInput for a source without annotations or of several formats; faults of the
    annotations, also a picture that is labelled twice, are added to ``faults``, so that the caller can name them together with
    others. ``counts`` is told what the source declares and what of it is no label. Keys that are ``ignored`` are not read.
    """
    if not source.exists():
        raise InvalidInput(f"{source}: no such file or folder")
    if source.suffix.lower() == ".zip":
        raise InvalidInput(f"{source}: is an archive; unpack it and give the folder")
    if images is not None and not images.is_dir():
        raise InvalidInput(f"--images {images}: no such folder")
    folder = source if source.is_dir() else source.parent
    finder = PictureFinder([folder, *([images] if images is not None else [])], images)
    files, others = _annotations(source, {file_key(path.stem) for path in finder.pictures})
    found = {kind: paths for kind, paths in files.items() if kind in FORMATS}
    foreign = {kind: paths for kind, paths in files.items() if kind not in (*FORMATS, _RESULTS)}
    if wanted == "yolo" or set(found) == {"yolo"}:
        for kinds in (files, foreign):
            kinds.pop(YOLO_TEXTS, None)  # its reader tells more
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
        known = "; ".join(f"{paths[0]} is of {kind}" for kind, paths in (files | others).items())
        if known:
            raise InvalidInput(
                f"{source}: no annotations found; {known}; export or convert it, for example to COCO"
            )
        hint = "; YOLO's text files need a data.yaml, classes.txt or obj.names with the names of the classes"
        text = source.is_dir() and any(path.suffix == ".txt" for path in files_in(source, below=True))
        raise InvalidInput(
            f"{source}: no annotations found; expected one of {', '.join(FORMATS)}{hint if text else ''}"
        )
    if not found.get(chosen):
        raise InvalidInput(
            f"{source}: no {chosen} annotations found; there are {', '.join(sorted(found)) or 'none'}"
        )
    keys = schemas.Keys(tuple(ignored))
    if chosen == "yolo":
        pictures = read_yolo(_single(found[chosen]), folder, finder, faults, counts, keys)
    else:
        pictures = _READERS[chosen](found[chosen], finder, faults, counts, keys)
    named = {picture.path for picture in pictures}
    if chosen != "yolo":
        for path in found[chosen]:
            keys.check_boxes(path, faults)
        others_there = [one for one in finder.pictures if one not in named]
        counts.note("pictures that the annotations do not name", others_there)
    finder.check(named, faults, counts)
    keys.tell(faults)
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


def _annotations(source: Path, stems: set[str]) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """The files with annotations in ``source`` by format, also of other tools, and the files that may be some.

    InvalidInput for a broken XML, JSON or YAML file: it may hold labels.
    """
    found: defaultdict[str, list[Path]] = defaultdict(list)
    others: defaultdict[str, list[Path]] = defaultdict(list)
    try:
        for path in files_in(source, below=True) if source.is_dir() else [source]:
            kind = _kind(path, stems)
            if kind:
                found[kind].append(path)
            elif path.suffix.lower() in (".xml", ".json", ".csv", ".jsonl", ".ndjson"):
                others[f"another kind ({path.suffix.lower()})"].append(path)
        named = names_files(source) if source.is_dir() else []
    except InvalidInput as error:
        raise InvalidInput(f"{error}; it may hold labels: repair it, or take it out of the folder") from None
    if source.is_file() and (source.name in NAME_LISTS or source.suffix in (".yaml", ".yml")):
        named = [source]
    if named:
        found["yolo"] = named
    return dict(found), dict(others)


def _kind(path: Path, stems: set[str]) -> str:
    suffix = path.suffix.lower()
    if suffix == ".xml":
        root = read_xml(path)
        like = schemas.boxes_in(root) or root.tag.lower().endswith("annotation")
        return _ROOTS.get(root.tag, f"labels of another kind (<{root.tag}>)" if like else "")
    if suffix == ".json":
        return _json_kind(read_json(path))
    if suffix in _BINARY:
        return f"labels of another kind ({suffix})"
    if suffix in _NO_DATA or path.name in NAME_LISTS:
        return ""
    if suffix == ".txt":
        return text_with_labels(path, stems)
    with path.open("rb") as stream:
        head = stream.read(MIB)
    text = "" if b"\0" in head else head.decode("utf-8", "replace")
    if suffix in (".csv", ".tsv"):
        rows = text_with_labels(path, stems)
        return "labels in CSV" if rows or _HEAD.search(text.partition("\n")[0]) else ""
    keys = re.findall(r'"(\w+)"\s*:', text) + re.findall(r"<(\w+)[\s>]", text)
    return f"labels of another kind ({suffix or path.name})" if any(map(_LIKE_LABELS.fullmatch, keys)) else ""


def _json_kind(content: Any) -> str:
    entries = content if isinstance(content, list) else [content]
    if not entries or not all(isinstance(one, dict) for one in entries):
        return "labels of another kind (.json)" if _like_labels(content) else ""
    if isinstance(content, list) and any(map(is_task, entries)):
        return "label-studio"
    if all({"image_id", "bbox", "score"} <= set(one) for one in entries):
        return _RESULTS
    if isinstance(content, dict) and {"images", "annotations", "categories"} <= set(content):
        return "coco"
    values = [one for one in entries[0].values() if isinstance(one, dict)]
    if values and all({"filename", "regions"} <= set(one) for one in values):
        return "VGG Image Annotator"
    named = (name for name, keys in _FOREIGN.items() if all(set(keys) <= set(one) for one in entries))
    return next(named, "labels of another kind (.json)" if _like_labels(content) else "").strip()


def _like_labels(content: Any) -> bool:
    if isinstance(content, dict):
        return any(
            (_LIKE_LABELS.fullmatch(key) and value) or _like_labels(value) for key, value in content.items()
        )
    return isinstance(content, list) and any(map(_like_labels, content))


def _single(files: Sequence[Path]) -> Path:
    first, *others = sorted(files, key=lambda path: path.name in NAME_LISTS)
    content, names = read_bytes(first, MIB), class_names(first, schemas.Keys())[0]
    for other in others:
        listed = other.name in NAME_LISTS and class_names(other, schemas.Keys())[0] == names
        if not listed and read_bytes(other, MIB) != content:
            raise InvalidInput(f"{first} and {other} both name classes; give the one that counts as SOURCE")
    return first
