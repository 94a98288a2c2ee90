# SPDX-License-Identifier: Apache-2.0
"""Making the follow-up cases: pictures with their truth in one COCO folder;
resumed where interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sticker_uq.evaluation.executors import mapped
from sticker_uq.io.coco import ANNOTATIONS, LabelledImage, annotation, write_annotations
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import MOST_PICTURE
from sticker_uq.io.reading import read_bytes, read_json
from sticker_uq.lab.corruptions import LabelledPicture, transform
from sticker_uq.lab.robustness.cases import Application, CaseSet, FollowUpCase
from sticker_uq.lab.robustness.drawing import Draft, DraftSet
from sticker_uq.lab.robustness.source_set import SourceImage, SourceSet
from sticker_uq.scene import InvalidInput

_JPEG_QUALITY = 95
_LOSSY = (".jpg", ".jpeg")
_FORMAT = 1
"""Part of every case's identity; counts up when the same application would give other pixels."""


def applied_to(picture: LabelledPicture, applied: Sequence[Application]) -> LabelledPicture:
    """A source picture put into circumstances: `picture` after all of `applied`, in order."""
    for one in applied:
        picture = transform(picture, one.transformation, one.strength, one.seed, **dict(one.parameters))
    return picture


def make_cases(
    source: SourceSet,
    sets: Sequence[DraftSet],
    folder: str | Path,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[CaseSet]:
    """Make the follow-up cases of `sets` in `folder` and return them; what is there already is not made again.

    The folder becomes a COCO data set of all cases (`annotations.json` appears last): any detector can be run on it. Equal cases
    of several sets are made once. `progress` is called with the cases done and their number. InvalidInput when the folder holds
    another data set or a source picture cannot be read.
    """
    root = Path(folder)
    if (root / ANNOTATIONS).exists() and not (root / "cases").is_dir():
        raise InvalidInput(f"{root}: holds another data set; expected a new folder or one of follow-up cases")
    (root / "images").mkdir(parents=True, exist_ok=True)
    (root / "cases").mkdir(exist_ok=True)
    digests = [
        hashlib.blake2b(read_bytes(image.item.path, MOST_PICTURE), digest_size=8).hexdigest()
        for image in source.images
    ]
    names = {draft: _case_id(draft, source, digests) for one in sets for draft in one.drafts}
    unique = {identity: draft for draft, identity in names.items()}
    wanted: dict[int, list[tuple[str, Draft]]] = {}
    for identity, draft in unique.items():
        if not (root / "cases" / f"{identity}.json").exists():
            wanted.setdefault(draft.image, []).append((identity, draft))
    done = len(unique) - sum(map(len, wanted.values()))
    work = [(source.images[image], drafts) for image, drafts in sorted(wanted.items())]
    progress(done, len(unique))
    for made in mapped(partial(_make, root), work, jobs):
        done += made
        progress(done, len(unique))
    cases = {
        identity: _read(root, number, identity, source.images[draft.image].item, draft)
        for number, (identity, draft) in enumerate(sorted(unique.items()), 1)
    }
    _write_annotations(root, source, list(cases.values()))
    return [
        CaseSet(one.kind, one.circumstance, one.strength, tuple(cases[names[d]] for d in one.drafts))
        for one in sets
    ]


def _case_id(draft: Draft, source: SourceSet, digests: Sequence[str]) -> str:
    image = source.images[draft.image]
    made = [_FORMAT, digests[draft.image], image.item.boxes.tolist(), [asdict(one) for one in draft.applied]]
    what = "+".join(one.circumstance for one in draft.applied)
    digest = hashlib.blake2b(json.dumps(made, sort_keys=True).encode(), digest_size=6).hexdigest()
    return f"{image.item.path.stem}-{what}-{digest}"[-120:]


def _make(root: Path, work: tuple[SourceImage, list[tuple[str, Draft]]]) -> int:
    """Make all cases of one source image; returns how many."""
    image, drafts = work
    picture = image.picture()
    suffix = ".jpg" if image.item.path.suffix.lower() in _LOSSY else ".png"
    options = (cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY) if suffix == ".jpg" else ()
    for identity, draft in drafts:
        after = applied_to(picture, draft.applied)
        name = f"images/{identity}{suffix}"
        with atomic_write(root / name) as stream:
            stream.write(cv2.imencode(suffix, after.image, options)[1].tobytes())
        truth = {
            "file_name": name,
            "width": after.size[0],
            "height": after.size[1],
            "boxes": after.boxes.tolist(),
            "labels": after.labels.tolist(),
            "origin": after.origin.tolist(),
            "hidden": after.hidden.tolist(),
        }
        with atomic_write(root / "cases" / f"{identity}.json", "w") as stream:
            json.dump(truth, stream)
    return len(drafts)


def _read(root: Path, number: int, identity: str, source: LabelledImage, draft: Draft) -> FollowUpCase:
    path = root / "cases" / f"{identity}.json"
    try:
        truth = read_json(path)
        return FollowUpCase(
            case_id=identity,
            image_id=number,
            path=root / truth["file_name"],
            source=source,
            applied=draft.applied,
            width=truth["width"],
            height=truth["height"],
            boxes=np.asarray(truth["boxes"], np.float32).reshape(-1, 4),
            labels=np.asarray(truth["labels"], np.int64),
            origin=np.asarray(truth["origin"], np.int64),
            hidden=np.asarray(truth["hidden"], np.int64),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"{path}: no truth of a follow-up case ({error}); delete it to have it made again"
        ) from None


def _write_annotations(root: Path, source: SourceSet, cases: Sequence[FollowUpCase]) -> None:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for case in cases:
        images.append(
            {
                "id": case.image_id,
                "file_name": os.fspath(case.path.relative_to(root)),
                "width": case.width,
                "height": case.height,
                "tags": list(case.circumstances),
                "source_image_id": case.source_id,
                "applied": [asdict(one) for one in case.applied],
                "hidden": case.hidden.tolist(),
            }
        )
        for box, label in zip(case.boxes.tolist(), case.labels.tolist(), strict=True):
            annotations.append(annotation(len(annotations) + 1, case.image_id, box, label))
    write_annotations(root, f"Follow-up test cases of {source.folder.name}", images, annotations)
