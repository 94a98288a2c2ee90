# SPDX-License-Identifier: Apache-2.0
"""Follow-up cases (Wozniak et al., task 4): source images put into circumstances drawn in the target proportions, in one
COCO folder; resumed where interrupted.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.evaluation.executors import map_over
from sticker_uq.io.coco import ANNOTATIONS, LabelledImage, annotation, write_annotations
from sticker_uq.io.files import write_file
from sticker_uq.io.images import MOST_PICTURE
from sticker_uq.io.reading import read_bytes, read_json
from sticker_uq.scene import InvalidInput, Rng
from sticker_uq_lab.corruptions import transform, transformation_named
from sticker_uq_lab.robustness.frequencies import SourceSet, TaggedImage
from sticker_uq_lab.robustness.spec import Circumstance, Specification


@dataclass(frozen=True)
class Application:
    """One circumstance of a case as it was applied: ``strength`` in the transformation's unit, seed, more parameters."""

    circumstance: str
    transformation: str
    strength: float
    seed: int
    parameters: tuple[tuple[str, float | str], ...] = ()


@dataclass(frozen=True)
class FollowUpCase:
    """One follow-up image, and its ``truth``: picture, visible objects and an id that is unique in the folder of cases.

    ``source`` is the labelled image it was made from; ``applied`` what was done to that, in order: one circumstance, or several
    at once. ``origin`` (N,) int64 says which of the source's objects each visible one is. ``hidden`` (M,) int64 are those still
    on the laptop that cannot be seen (covered, or outside the image): no detection is expected of them, yet to call the laptop
    clean would be wrong.
    """

    case_id: str
    truth: LabelledImage
    source: LabelledImage
    applied: tuple[Application, ...]
    origin: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.int64]

    @property
    def source_id(self) -> int:
        return self.source.image_id

    @property
    def circumstances(self) -> tuple[str, ...]:
        return tuple(one.circumstance for one in self.applied)


@dataclass(frozen=True)
class Draft:
    """One follow-up case to be made: number of the source image, and what is done to it, in order."""

    image: int
    applied: tuple[Application, ...]


def check_transformations(spec: Specification) -> None:
    for circumstance in spec.circumstances:
        if circumstance.transformation is None or circumstance.strength is None:
            continue
        known = transformation_named(circumstance.transformation)
        for strength in circumstance.strength:
            try:
                known.check(strength, circumstance.parameters)
            except InvalidInput as error:
                raise InvalidInput(f"circumstance {circumstance.name}: {error}") from None


def with_transformation(spec: Specification) -> tuple[Circumstance, ...]:
    """The circumstances that a transformation can put an image into, the most significant first."""
    able = (c for c in spec.circumstances if c.transformation is not None)
    return tuple(sorted(able, key=lambda c: (-c.significance, c.name)))


def target_set(spec: Specification, images: int, count: int) -> tuple[Draft, ...]:
    """`count` follow-up cases in the target proportions, over `images` source images that are used equally often.

    Circumstances of one exclusive group never meet in one case; all others are independent of each other, so cases with several
    circumstances arise as often as they should, unless the specification forbids combinations. Shares are met as nearly as whole
    cases allow, given that a case is in at least one circumstance (Wozniak et al., section 5.5).
    """
    able = [c for c in with_transformation(spec) if c.frequency > 0]
    if not able or count < 1 or images < 1:
        raise InvalidInput(
            f"{count} follow-up cases of {images} images in {len(able)} circumstances with a transformation and a frequency; "
            "expected at least one of each"
        )
    rng = np.random.default_rng(_seed(spec.seed, "target"))
    chosen = _combine(spec, able, count, rng) if spec.combinations else _one_each(able, count, rng)
    order = np.concatenate([rng.permutation(images) for _ in range(math.ceil(count / images))])[:count]
    return tuple(
        Draft(int(image), tuple(_application(spec, c, int(image), f"target {number}") for c in several))
        for number, (image, several) in enumerate(zip(order, chosen, strict=True))
    )


def circumstance_set(
    spec: Specification, circumstance: Circumstance, images: Sequence[int]
) -> tuple[Draft, ...]:
    """Each of `images` (numbers) in `circumstance`, at strengths spread evenly over its range."""
    return tuple(
        Draft(image, (_application(spec, circumstance, image, circumstance.name),)) for image in images
    )


def _application(spec: Specification, circumstance: Circumstance, image: int, role: str) -> Application:
    assert circumstance.transformation is not None
    assert circumstance.strength is not None
    seed = _seed(spec.seed, circumstance.name, image, role)
    mild, severe = circumstance.strength
    strength = mild + (severe - mild) * float(np.random.default_rng(seed).random())
    strength, parameters = float(f"{strength:.4g}"), tuple(sorted(circumstance.parameters.items()))
    return Application(circumstance.name, circumstance.transformation, strength, seed, parameters)


def _seed(*parts: object) -> int:
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def _combine(
    spec: Specification, able: Sequence[Circumstance], count: int, rng: Rng
) -> list[tuple[Circumstance, ...]]:
    """`count` combinations: each group deals its circumstances to trials of its own, and empty trials fall out."""
    groups: dict[str, list[Circumstance]] = {}
    for circumstance in able:
        groups.setdefault(circumstance.exclusive_group or f"/{circumstance.name}", []).append(circumstance)
    nothing = math.prod(1 - min(1.0, sum(c.frequency for c in group)) for group in groups.values())
    trials = math.ceil(count / (1 - nothing))
    while True:
        dealt: list[list[Circumstance]] = [[] for _ in range(trials)]
        for group in groups.values():
            shares = [c.frequency for c in group]
            places = rng.permutation(trials)
            quotas = _quotas([*shares, max(0.0, 1 - sum(shares))], trials)
            start = 0
            for circumstance, quota in zip(group, quotas, strict=False):
                for place in places[start : start + quota]:
                    dealt[place].append(circumstance)
                start += quota
        filled = [_in_order(several) for several in dealt if several]
        if len(filled) >= count:
            return filled[:count]
        trials += max(1, count - len(filled))


def _one_each(able: Sequence[Circumstance], count: int, rng: Rng) -> list[tuple[Circumstance, ...]]:
    total = sum(c.frequency for c in able)
    quotas = _quotas([c.frequency / total for c in able], count)
    dealt = [(c,) for c, quota in zip(able, quotas, strict=True) for _ in range(quota)]
    return [dealt[place] for place in rng.permutation(count)]


def _quotas(shares: Sequence[float], total: int) -> list[int]:
    """Whole numbers in the proportions of `shares` (which sum to 1) that sum to `total`: largest remainders."""
    exact = np.asarray(shares) * total
    whole = np.floor(exact + 1e-9).astype(int)
    for index in np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]:
        whole[index] += 1
    return whole.tolist()


def _in_order(several: Sequence[Circumstance]) -> tuple[Circumstance, ...]:
    """As light meets them: first the workpiece, last the file."""
    return tuple(sorted(several, key=lambda c: (transformation_named(str(c.transformation)).stage, c.name)))


_JPEG_QUALITY = 95
_LOSSY = (".jpg", ".jpeg")
_OF_OBJECTS = ("labels", "origin", "hidden")
_FORMAT = 1  # part of every case's identity; counts up when the same application would give other pixels


def make_cases(
    source: SourceSet,
    sets: Mapping[str, Sequence[Draft]],
    folder: str | Path,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, tuple[FollowUpCase, ...]]:
    """Make the follow-up cases of `sets` in `folder` and return them; what is there already is not made again.

    The folder becomes a COCO data set of all cases (`annotations.json` appears last): any detector can be run on it. Equal cases
    of several sets are made once. `progress` is called with the cases done and their number.
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
    names = {draft: _case_id(draft, source, digests) for one in sets.values() for draft in one}
    unique = {identity: draft for draft, identity in names.items()}
    wanted: dict[int, list[tuple[str, Draft]]] = {}
    for identity, draft in unique.items():
        if not (root / "cases" / f"{identity}.json").exists():
            wanted.setdefault(draft.image, []).append((identity, draft))
    done = len(unique) - sum(map(len, wanted.values()))
    work = [(source.images[image], drafts) for image, drafts in sorted(wanted.items())]
    progress(done, len(unique))
    for made in map_over(partial(_make, root), work, jobs):
        done += made
        progress(done, len(unique))
    cases = {
        identity: _read(root, number, identity, source.images[draft.image].item, draft)
        for number, (identity, draft) in enumerate(sorted(unique.items()), 1)
    }
    _write_annotations(root, source, list(cases.values()))
    return {name: tuple(cases[names[draft]] for draft in one) for name, one in sets.items()}


def _case_id(draft: Draft, source: SourceSet, digests: Sequence[str]) -> str:
    image = source.images[draft.image]
    made = [_FORMAT, digests[draft.image], image.item.boxes.tolist(), [asdict(one) for one in draft.applied]]
    what = "+".join(one.circumstance for one in draft.applied)
    digest = hashlib.blake2b(json.dumps(made, sort_keys=True).encode(), digest_size=6).hexdigest()
    return f"{image.item.path.stem}-{what}-{digest}"[-120:]


def _make(root: Path, work: tuple[TaggedImage, list[tuple[str, Draft]]]) -> int:
    image, drafts = work
    picture = image.picture()
    suffix = ".jpg" if image.item.path.suffix.lower() in _LOSSY else ".png"
    options = (cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY) if suffix == ".jpg" else ()
    for identity, draft in drafts:
        after = picture
        for one in draft.applied:
            after = transform(after, one.transformation, one.strength, one.seed, **dict(one.parameters))
        name = f"images/{identity}{suffix}"
        write_file(root / name, cv2.imencode(suffix, after.image, options)[1].tobytes())
        truth = {
            "file_name": name,
            "width": after.size[0],
            "height": after.size[1],
            **{name: getattr(after, name).tolist() for name in ("boxes", *_OF_OBJECTS)},
        }
        write_file(root / "cases" / f"{identity}.json", json.dumps(truth))
    return len(drafts)


def _read(root: Path, number: int, identity: str, source: LabelledImage, draft: Draft) -> FollowUpCase:
    path = root / "cases" / f"{identity}.json"
    try:
        truth = read_json(path)
        boxes = np.asarray(truth["boxes"], np.float32).reshape(-1, 4)
        labels, origin, hidden = (np.asarray(truth[name], np.int64) for name in _OF_OBJECTS)
        size = truth["width"], truth["height"]
        seen = LabelledImage(root / truth["file_name"], number, *size, boxes, labels)
        return FollowUpCase(identity, seen, source, draft.applied, origin, hidden)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"{path}: no truth of a follow-up case ({error}); delete it to have it made again"
        ) from None


def _write_annotations(root: Path, source: SourceSet, cases: Sequence[FollowUpCase]) -> None:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for case in cases:
        truth = case.truth
        about = {
            "id": truth.image_id,
            "file_name": os.fspath(truth.path.relative_to(root)),
            "width": truth.width,
            "height": truth.height,
            "tags": list(case.circumstances),
            "source_image_id": case.source_id,
            "applied": [asdict(one) for one in case.applied],
            "hidden": case.hidden.tolist(),
        }
        images.append(about)
        for box, label in zip(truth.boxes.tolist(), truth.labels.tolist(), strict=True):
            annotations.append(annotation(len(annotations) + 1, truth.image_id, box, label))
    write_annotations(root, f"Follow-up test cases of {source.folder.name}", images, annotations)
