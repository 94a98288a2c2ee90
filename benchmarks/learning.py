"""Does the cell ask less once people's answers have been learned?  ``python -m benchmarks.learning --out out/learning``

Laptops of makes that the packaged detector was never trained on go past the policy; a person, played by the ground truth of the
renderer, answers what is asked. The answered pictures, labelled as `sticker-uq dataset from-audit` labels them, and as many
pictures of the known kind go into a training that starts from the packaged weights. Both detectors get a policy with the same
promise, fitted and proved on the same laptops, and are compared on laptops that nobody has seen.

The policy is proved on laptops drawn at random and not on the answered ones: those are the difficult ones, and a promise holds
only for laptops like those it was proved on.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.rendered import Recipe, records
from sticker_uq.calibration.cache import AssessmentCache
from sticker_uq.calibration.fitting import Levels, certify, fit_policy
from sticker_uq.calibration.measuring import Measured, measure
from sticker_uq.calibration.records import Record
from sticker_uq.datasets.coco import EncodedScene, encode_picture, write_coco
from sticker_uq.datasets.files import atomic_write
from sticker_uq.detection.training import BEST, TrainSettings, train
from sticker_uq.evaluation.answered import AnsweredQuestion, label_case
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import ObjectClass, Verdict
from sticker_uq.supervision import Policy
from sticker_uq.supervision.boxes import as_box
from sticker_uq.supervision.judge import judge
from sticker_uq.supervision.memory import Answer, Memory, PersonAnswer, SceneAnswer
from sticker_uq.uncertainty import iou_matrix

CIRCUMSTANCE, STRENGTH = "unknown_make", 60.0
FIT, PROOF, TEST, ASKED, KNOWN = 700_000, 710_000, 720_000, 730_000, 740_000
"""First seeds of the laptops to fit on, to prove on, to test on, that go past the policy, and of the known kind."""
_ANSWER = {ObjectClass.STICKER: Answer.REMOVE, ObjectClass.LOGO: Answer.KEEP}
_BATCH = 50


def new_laptops(first: int, count: int) -> list[Recipe]:
    """Laptops of unknown makes."""
    return [Recipe(first + i, CIRCUMSTANCE, STRENGTH) for i in range(count)]


def answered(record: Record, policy: Policy) -> tuple[np.ndarray, np.ndarray] | None:
    """Boxes and labels that a person's answer gives, None when the policy does not ask about this laptop."""
    decision = judge(record.assessment, policy.model_copy(update={"validity": None}))
    # where something may be removed first, the cell asks about the rest afterwards
    if not any(verdict.verdict is Verdict.ASK for verdict in decision.verdicts):
        return None
    answers = [
        PersonAnswer(_truth(record, verdict.object.box), as_box(verdict.object.box))
        for verdict in decision.verdicts
        if verdict.verdict is Verdict.ASK
    ]
    seen = np.array([v.object.box for v in decision.verdicts], np.float32).reshape(-1, 4)
    for box, label in zip(record.boxes, record.labels, strict=True):
        overlap = iou_matrix(box[None], seen)
        if label == ObjectClass.STICKER and not (overlap >= 0.5).any():
            answers.append(PersonAnswer(Answer.MISSED, as_box(box)))
    question = AnsweredQuestion(
        "", decision.decision_id, "", record.assessment.stamp_ns, "ground truth", SceneAnswer.NONE, tuple(answers), Memory()
    )  # fmt: skip
    boxes, problem = label_case(question, decision)
    if problem:
        return None
    corners = np.array([box.box for box in boxes], np.float32).reshape(-1, 4)
    return corners, np.array([box.label for box in boxes], np.int64)


def _truth(record: Record, box: np.ndarray) -> Answer:
    overlaps = iou_matrix(np.asarray(box, np.float32)[None], record.boxes)[0]
    best = int(overlaps.argmax()) if len(overlaps) else -1
    if best < 0 or overlaps[best] < 0.5:
        return Answer.NOT_THERE
    return _ANSWER[ObjectClass(int(record.labels[best]))]


def gather(
    cases: int, policy: Policy, settings: PerceptionSettings, cache: AssessmentCache, jobs: int
) -> tuple[list[EncodedScene], int]:
    """``cases`` answered pictures, and how many laptops it took."""
    scenes: list[EncodedScene] = []
    laptops = 0
    while len(scenes) < cases:
        recipes = new_laptops(ASKED + laptops, _BATCH)
        for recipe, record in zip(recipes, records(recipes, settings, cache, jobs), strict=True):
            laptops += 1
            labels = answered(record, policy)
            if labels is not None and len(scenes) < cases:
                scenes.append(_encoded(recipe, *labels))
        print(f"  {len(scenes)} answered cases of {laptops} laptops", flush=True)
    return scenes, laptops


def _encoded(recipe: Recipe, boxes: np.ndarray, labels: np.ndarray) -> EncodedScene:
    image = recipe.picture().image
    height, width = image.shape[:2]
    return EncodedScene(recipe.seed, "jpg", encode_picture(image, "jpg"), width, height, boxes, labels)


def known_laptops(count: int) -> list[EncodedScene]:
    """Pictures of the kind that the packaged weights were trained on, so that nothing is forgotten."""
    scenes = []
    for i in range(count):
        picture = Recipe(KNOWN + i).picture()
        scenes.append(_encoded(Recipe(KNOWN + i), picture.boxes, picture.labels))
    return scenes


def policy_for(
    settings: PerceptionSettings, cache: AssessmentCache, jobs: int, sizes: Sequence[int], levels: Levels
) -> Policy:
    """A policy with the promise ``levels`` for the detector of ``settings``."""
    fit = records(new_laptops(FIT, sizes[0]), settings, cache, jobs)
    proof = records(new_laptops(PROOF, sizes[1]), settings, cache, jobs)
    return certify(fit_policy(fit, Policy()), fit, proof, levels)


def shares(measured: Measured) -> dict[str, float | int]:
    """The figures of one detector with its policy."""
    return {
        "laptops": measured.images,
        "asked_objects": measured.verdicts["ask"].rate,
        "asked_laptops": measured.asked.rate,
        "removed": measured.removed.rate,
        "wrongful": measured.wrongful.events,
        "wrongful_high": measured.wrongful.interval[1],
        "missed_called_clean": measured.missed.events,
    }


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/learning"))
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--fit", type=int, default=200)
    parser.add_argument("--proof", type=int, default=400)
    parser.add_argument("--test", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=0.02)
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--delta", type=float, default=0.1)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cache = AssessmentCache(options.out / "assessments.sqlite")
    levels, sizes = Levels(options.alpha, options.beta, options.delta), (options.fit, options.proof)
    test = new_laptops(TEST, options.test)

    before = PerceptionSettings()
    policy = policy_for(before, cache, options.jobs, sizes, levels)
    table = {"packaged weights": shares(measure(records(test, before, cache, options.jobs), policy))}
    print(json.dumps(table, indent=1), flush=True)

    folder = options.out / "answered"
    if not (folder / "annotations.json").exists():
        cases, laptops = gather(options.cases, policy, before, cache, options.jobs)
        write_coco(folder, cases)
        print(f"{len(cases)} answered cases of {laptops} laptops")
        write_coco(options.out / "known", known_laptops(options.cases))
    weights = options.out / "training" / BEST
    if not weights.exists():
        packaged = (
            Path(__file__).parents[1]
            / "sticker_uq/detection/weights/ssdlite320_mobilenet_v3_large.safetensors"
        )
        train(
            TrainSettings(
                data=(folder, options.out / "known"), out=weights.parent, start=str(packaged), epochs=options.epochs,
                learning_rate=0.002, batch_size=16, threads=options.jobs,
            ),
            command="python -m benchmarks.learning",
            on_epoch=lambda result: print(f"  epoch {result.epoch}: mAP@0.5 {result.map50:.3f}", flush=True),
        )  # fmt: skip

    after = PerceptionSettings(weights=str(weights))
    policy = policy_for(after, cache, options.jobs, sizes, levels)
    table["after the answers"] = shares(measure(records(test, after, cache, options.jobs), policy))
    with atomic_write(options.out / "learning.json", "w") as file:
        json.dump(table, file, indent=1)
    for name, row in table.items():
        print(f"{name:>18}  " + "  ".join(f"{key} {value:.4g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
