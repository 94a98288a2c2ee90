# SPDX-License-Identifier: Apache-2.0
"""What is left on rendered laptops that the cell finishes alone, by kind, and what limits on two facts of the scene change.

    python -m benchmarks.left WORK --profile study --first 180000000 --laptops 400
    python -m benchmarks.left WORK --profile study --out benchmarks/results/left.json

The first command takes laptops to their end with the packaged policy and the last look, and writes a line for each to
WORK/PROFILE-FIRST.jsonl, from where it goes on when started again. A laptop that ends with a hand or a gripper in view is taken
on without it. The second one reads all lines of the profile from --first on, and tells by the renderer's truth of which kind what
is left is, and for the limits --obstruction and --missed how many laptops end with a question and how many keep a sticker.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from benchmarks.result_files import argument_parser, result_file
from benchmarks.tables import markdown
from benchmarks.trade import TEST
from sticker_uq.evaluation.executors import map_over
from sticker_uq.evaluation.metrics.decisions import BLADE_IOU, match_label
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.box_overlap import as_box, covered_share
from sticker_uq.gate.judge import once_peeled
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import decode_picture
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import ObjectClass, Outcome, SceneAssessment
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.rendering import RenderedScene, SceneSpec, encode_scene, render, sample_scene
from sticker_uq_lab.rendering.painting import Image
from sticker_uq_lab.rendering.scene_sampling import Profile
from sticker_uq_lab.rendering.things import lay_thing

IN_FRONT = ("hand", "gripper")
"""Kinds of things that come and go by themselves."""
SMALL, FAINT, HIDDEN, NEAR = 20.0, 14.0, 0.85, 8.0
"""A sticker is small with a shorter side of so many px of the detector's input of 800, faint at such a mean distance in CIELAB
from what is around it, covered where less of it is visible, and at something that lies within so many px of that input."""
KINDS = (
    "at a hand or gripper",
    "covered by a thing",
    "covered by a sticker",
    "over or at a logo",
    "small",
    "faint",
    "torn or worn",
    "in a blurred, noisy or glaring picture",
    "plain",
)
"""What a sticker that is left is called: the first that fits."""
SEEN = ("by no pass", "by some passes, below notable", "called background or logo", "released, but not met")
_INPUT = 800.0
_PART = 0.6
"""Of a side of the picture, for each of four enlarged parts."""


def _cell(policy: Path) -> tuple[Perception, Policy]:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    free = Policy.load(policy).model_copy(update={"validity": None, "max_obstruction": 1.0})
    free = free.model_copy(update={"max_missed_sticker_probability": 1.0})
    return Perception(PerceptionSettings(device="cpu", threads=1)), free


_CELLS: dict[Path, tuple[Perception, Policy]] = {}


def laptop(seed: int, profile: Profile, policy: Path) -> dict[str, Any]:
    """The laptop of ``seed`` at its end, and, where a hand or a gripper is in view then, at its end without it."""
    if policy not in _CELLS:
        _CELLS[policy] = _cell(policy)
    spec = sample_scene(seed, profile=profile)
    found, spec = _end(seed, spec, TEST[profile][1], *_CELLS[policy])
    free = tuple(thing for thing in spec.things if thing.kind not in IN_FRONT)
    if len(free) < len(spec.things):
        found["free"], _ = _end(seed, replace(spec, things=free), TEST[profile][1], *_CELLS[policy])
    return {"seed": seed, **found}


def _end(
    seed: int, spec: SceneSpec, size: tuple[int, int], perception: Perception, rules: Policy
) -> tuple[dict[str, Any], SceneSpec]:
    """What is known at the end of ``spec``, where the cell looks anew after it peeled what is released, and what it is then."""
    wrongful, peeled = False, 0
    while True:
        scene = render(spec, size)
        picture = decode_picture(encode_scene(seed, scene).data)
        seen = perception.assess(picture)
        decision = judge(seen, rules)
        allowed = decision.removable() if decision.outcome is Outcome.WORK else ()
        met = {match_label(one.region, scene.boxes, BLADE_IOU)[0] for one in allowed}
        gone = [place for place in met if place >= 0 and scene.labels[place] == ObjectClass.STICKER]
        wrongful |= len(gone) < len(met)
        if not gone:
            break
        peeled += len(gone)
        for place in gone:
            spec = spec.without_sticker(int(scene.ids[place]))
    localization = seen.localization
    assert localization is not None
    left = np.flatnonzero(scene.labels == ObjectClass.STICKER)
    found = {
        "asked": once_peeled(decision, seen, rules).outcome is not Outcome.CLEAN,
        "clean": decision.outcome is Outcome.CLEAN,
        "wrongful": bool(wrongful),
        "peeled": peeled,
        "obstruction": localization.obstruction,
        "missed": localization.missed_sticker_probability,
        "objectness": localization.unexplained_objectness,
        "passes": _left_score(seen, "passes"),
        "one pass": _left_score(seen, "one pass"),
        "four parts": _tiles(perception, picture, seen) if decision.outcome is Outcome.CLEAN else 0.0,
        "left": [_described(spec, scene, int(place), seen, size) for place in left],
        "logos": int((scene.labels == ObjectClass.LOGO).sum()),
    }
    return found, spec


def _tiles(perception: Perception, picture: Image, seen: SceneAssessment) -> float:
    """The highest probability of sticker that one pass gives in four parts of ``picture``, outside what is sure."""
    height, width = picture.shape[:2]
    w, h, best = int(width * _PART), int(height * _PART), 0.0
    sure = [as_box(o.box) for o in seen.objects if o.label and o.over_all_passes[o.label] >= 0.5]
    for left in (0, width - w):
        for top in (0, height - h):
            found = perception.detector.detect_in(
                np.ascontiguousarray(picture[top : top + h, left : left + w])
            )
            boxes = found.boxes + np.array([left, top, left, top], np.float32)
            alone = np.array([covered_share(as_box(box), sure) <= 0.5 for box in boxes], bool)
            best = max(best, float(found.probabilities[alone, ObjectClass.STICKER].max(initial=0.0)))
    return best


def _left_score(seen: SceneAssessment, by: str) -> float:
    """The highest probability of sticker of what the passes are not sure of: in those that saw it, or in one without dropout."""
    sure = [o for o in seen.objects if o.label and o.over_all_passes[o.label] >= 0.5]
    rest = [o for o in (*seen.objects, *seen.unstable) if all(o is not one for one in sure)]
    scores = [float(o.probabilities[ObjectClass.STICKER]) if by == "passes" else o.single_pass for o in rest]
    return float(np.nanmax([0.0, *scores]))


def _described(
    spec: SceneSpec, scene: RenderedScene, place: int, seen: SceneAssessment, size: tuple[int, int]
) -> dict[str, Any]:
    """Kind and size of the sticker at ``place``, and how it was seen."""
    identity, box = int(scene.ids[place]), scene.boxes[place]
    sticker = next(one for one in spec.stickers if one.id == identity)
    scale = np.array([_INPUT / size[0], _INPUT / size[1]])
    sides = (box[2:] - box[:2]) * scale
    cause = _cause(spec, scene, place, size)
    facts = {
        "at a hand or gripper": cause["in front"] <= NEAR,
        "covered by a thing": cause["thing"] <= 0.0 and scene.visible_fraction[place] < HIDDEN,
        "covered by a sticker": scene.visible_fraction[place] < HIDDEN,
        "over or at a logo": cause["logo"],
        "small": bool(sides.min() < SMALL),
        "faint": _contrast(scene, identity) < FAINT,
        "torn or worn": sticker.wear > 0.6 or sticker.peel > 0.15,
        "in a blurred, noisy or glaring picture": spec.camera.noise > 7
        or spec.camera.blur > 0.0013
        or spec.camera.motion > 0
        or spec.light.specular_strength > 150,
        "plain": True,
    }
    best = _best(seen, box)
    return {
        "kind": next(kind for kind in KINDS if facts[kind]),
        "kinds": [kind for kind in KINDS[:-1] if facts[kind]],
        "seen": best,
        "shorter side": round(float(sides.min()), 1),
        "visible": round(float(scene.visible_fraction[place]), 2),
        "contrast": round(_contrast(scene, identity), 1),
    }


def _cause(spec: SceneSpec, scene: RenderedScene, place: int, size: tuple[int, int]) -> dict[str, Any]:
    """Px of the detector's input from the sticker at ``place`` to a hand or gripper, and to a thing; whether it meets a logo."""
    shown = (scene.id_map == scene.ids[place]).astype(np.uint8)
    away = cv2.distanceTransform(1 - shown, cv2.DIST_L2, 3) * (_INPUT / size[0])
    gaps = {"in front": np.inf, "thing": np.inf}
    for thing in spec.things:
        hidden: Image = np.zeros(size[::-1], np.uint8)
        lay_thing(np.zeros((*size[::-1], 3), np.uint8), thing, hidden)
        name = "in front" if thing.kind in IN_FRONT else "thing"
        if (hidden > 127).any():
            gaps[name] = min(gaps[name], float(away[hidden > 127].min()) - 1.5)
    logos = scene.boxes[scene.labels == ObjectClass.LOGO]
    return {**gaps, "logo": bool(iou_matrix(scene.boxes[place][None], logos).max(initial=0.0) > 0.0)}


def _contrast(scene: RenderedScene, identity: int) -> float:
    """Mean distance in CIELAB of the pixels of a sticker from the median of a ring around it."""
    own = scene.id_map == identity
    x, y, w, h = cv2.boundingRect(own.astype(np.uint8))
    pad = max(8, min(w, h) // 3)
    part = (slice(max(y - pad, 0), y + h + pad), slice(max(x - pad, 0), x + w + pad))
    lab = cv2.cvtColor(scene.image[part], cv2.COLOR_BGR2LAB).astype(np.float32)
    inside = own[part]
    grown = cv2.dilate(inside.astype(np.uint8), np.ones((2 * pad + 1, 2 * pad + 1), np.uint8)) > 0
    ring = grown & (scene.id_map[part] == 0)
    if not ring.any():
        return float("inf")
    return float(np.linalg.norm(lab[inside] - np.median(lab[ring], axis=0), axis=1).mean())


def _best(seen: SceneAssessment, box: Any) -> str:
    """How the sticker in ``box`` was seen, one of SEEN."""
    objects = [*seen.objects, *seen.unstable]
    overlaps = iou_matrix(np.asarray(box)[None], np.array([o.box for o in objects]).reshape(-1, 4))[0]
    near = [o for o, overlap in zip(objects, overlaps, strict=True) if overlap >= BLADE_IOU]
    if not near:
        return SEEN[0]
    best = max(near, key=lambda one: float(one.over_all_passes[ObjectClass.STICKER]))
    if best.label is ObjectClass.STICKER and best.over_all_passes[ObjectClass.STICKER] >= 0.5:
        return SEEN[3]
    return SEEN[1] if best.unstable or best.detection_rate < 0.5 else SEEN[2]


def ended(end: dict[str, Any], obstruction: float, missed: float) -> dict[str, Any]:
    """What a laptop with the record ``end`` comes to under these limits; of two ends that without a hand counts after waiting."""
    behind = not end["obstruction"] <= obstruction and (end["asked"] or end["clean"])
    if behind and "free" in end:
        free = ended(end["free"], obstruction, missed)
        return {**free, "wrongful": free["wrongful"] or end["wrongful"], "waited": True}
    asked = end["asked"] or behind or (end["clean"] and not end["missed"] <= missed)
    return {"asked": asked, "wrongful": end["wrongful"], "left": end["left"], "waited": False}


def row(ends: Sequence[dict[str, Any]], obstruction: float = 1.0, missed: float = 1.0) -> dict[str, Any]:
    """Counts under these limits, those of shares with their 95 % intervals."""
    found = [ended(end, obstruction, missed) for end in ends]
    alone = [one for one in found if not one["asked"]]
    keep = sum(bool(one["left"]) for one in alone)
    asked = sum(one["asked"] for one in found)
    return {
        "max_obstruction": obstruction,
        "max_missed_sticker_probability": missed,
        "laptops": len(found),
        "asked": asked,
        "asked, %": _percent(asked, len(found)),
        "waited": sum(one["waited"] for one in found),
        "finished alone": len(alone),
        "of these keep a sticker": keep,
        "keep a sticker, %": _percent(keep, len(alone)),
        "wrongful": sum(one["wrongful"] for one in found),
    }


def _percent(events: int, of: int) -> str:
    if not of:
        return "-"
    low, high = clopper_pearson(events, of)
    return f"{100 * events / of:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def kinds(ends: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stickers on laptops that are called clean, by kind: how many, how they were seen, and their median size."""
    left = [one for end in ends if end["clean"] for one in end["left"]]
    rows = []
    for kind in KINDS:
        own = [one for one in left if one["kind"] == kind]
        if own:
            seen = Counter(one["seen"] for one in own)
            sides = float(np.median([one["shorter side"] for one in own]))
            any_kind = sum(kind in one["kinds"] for one in left)
            rows.append(
                {
                    "kind": kind,
                    "stickers": len(own),
                    "also": any_kind,
                    **{s: seen[s] for s in SEEN},
                    "shorter side, px of 800": sides,
                }
            )
    return rows


def signals(ends: Sequence[dict[str, Any]], budget: float = 0.02) -> list[dict[str, Any]]:
    """How well each signal tells laptops called clean that keep a sticker, and how many it finds at ``budget`` of the others."""
    clean = [end for end in ends if end["clean"]]
    dirty = np.array([bool(end["left"]) for end in clean])
    rows = []
    for name in ("objectness", "one pass", "passes", "four parts", "missed", "obstruction"):
        values = np.array([end[name] for end in clean], float)
        bad, good = values[dirty], np.sort(values[~dirty])[::-1]
        if not len(bad) or not len(good):
            continue
        limit = good[min(int(budget * len(good)), len(good) - 1)]
        area = float((bad[:, None] > good).mean() + (bad[:, None] == good).mean() / 2)
        caught = int((bad > limit).sum())
        rows.append(
            {
                "signal": name,
                "area": round(area, 3),
                "found": f"{caught} of {len(bad)}",
                "found, %": _percent(caught, len(bad)),
            }
        )
    return rows


def read(file: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables in the result ``file``."""
    found: dict[str, list[dict[str, Any]]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(found: dict[str, list[dict[str, Any]]], name: str = "study_limits") -> str:
    """The table ``name`` of the result file, in Markdown."""
    rows = found[name]
    return (
        markdown(list(rows[0]), [[str(value) for value in one.values()] for one in rows]) if rows else "none"
    )


def records(work: Path, profile: str, first: int) -> list[dict[str, Any]]:
    """All records of ``profile`` in ``work`` of seeds from ``first`` on."""
    files = sorted(work.glob(f"{profile}-*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [one for one in lines if one["seed"] >= first]


def _run(work: Path, options: Any) -> None:
    work.mkdir(parents=True, exist_ok=True)
    file = work / f"{options.profile}-{options.first}.jsonl"
    done = {one["seed"] for one in records(work, options.profile, 0)}
    wanted = [n for n in range(options.first, options.first + options.laptops) if n not in done]
    one = partial(laptop, profile=options.profile, policy=options.policy)
    for found in map_over(one, wanted, options.jobs, chunksize=1):
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(found) + "\n")
        print(
            f"{found['seed']}: {len(found['left'])} left, {'asked' if found['asked'] else 'alone'}",
            flush=True,
        )


def main() -> None:
    """Take laptops to their end, or tell what is left on them."""
    parser = argument_parser(__doc__)
    parser.add_argument("work", type=Path, help="folder of the records")
    parser.add_argument("--profile", choices=list(TEST), default="study")
    parser.add_argument("--first", type=int, default=181_000_000, help="first seed")
    parser.add_argument("--laptops", type=int, default=400)
    parser.add_argument("--policy", type=Path, default=Path("config/policy.yaml"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--obstruction", type=float, default=0.5)
    parser.add_argument("--missed", type=float, default=0.5)
    parser.add_argument("--out", type=result_file, help="JSON file to write, of which other profiles stay")
    options = parser.parse_args()
    if options.out is None:
        _run(options.work, options)
        return
    ends = records(options.work, options.profile, options.first)
    known: dict[str, Any] = read(options.out) if options.out.is_file() else {}
    limits = (
        (1.0, 1.0),
        (options.obstruction, 1.0),
        (1.0, options.missed),
        (options.obstruction, options.missed),
    )
    known[f"{options.profile}_limits"] = [row(ends, *pair) for pair in limits]
    known[f"{options.profile}_kinds"] = kinds(ends)
    known[f"{options.profile}_signals"] = signals(ends)
    with atomic_write(options.out, "w") as stream:
        stream.write(json.dumps(known, indent=1) + "\n")
    print(json.dumps(known, indent=1))


if __name__ == "__main__":
    main()
