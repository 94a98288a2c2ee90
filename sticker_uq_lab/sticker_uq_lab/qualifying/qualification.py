# SPDX-License-Identifier: Apache-2.0
"""A qualification: check, train, evaluate, novelty network, calibrate, test, robustness, verdict."""

import json
from collections import Counter
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from sticker_uq.calibration.fitting import FitSettings, Levels, fit_policy
from sticker_uq.calibration.making import Divided, evidence, write_policy
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.planning import Prospect, Units
from sticker_uq.calibration.probability import choose_kind
from sticker_uq.calibration.proving import Trials
from sticker_uq.calibration.records import Assessed
from sticker_uq.detection.detector import load_detector
from sticker_uq.evaluation.metrics.accuracy import evaluate_detector, evaluate_passes
from sticker_uq.gate import Policy
from sticker_uq.io.coco import LabelledImage, read_coco
from sticker_uq.io.files import write_file
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.reading import read_json
from sticker_uq.io.share import share_folder
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.datasets import checking
from sticker_uq_lab.datasets.importing.grouping import PARTS
from sticker_uq_lab.kept_pieces import STEPS, file_digest
from sticker_uq_lab.qualifying import candidate as candidates
from sticker_uq_lab.qualifying import results
from sticker_uq_lab.qualifying.candidate import POLICY, Candidate, CandidateSettings
from sticker_uq_lab.qualifying.parts import (
    divide,
    fingerprint,
    near_in_two_parts,
    parts_in,
    parts_of,
    refuse_same_pixels,
)
from sticker_uq_lab.robustness.assessment import assess, prepare
from sticker_uq_lab.robustness.frequencies import SourceSet
from sticker_uq_lab.robustness.robustness_report import write_report
from sticker_uq_lab.robustness.spec import laptop_cell
from sticker_uq_lab.robustness.systems import CellSystem
from sticker_uq_lab.training.settings import TrainSettings
from sticker_uq_lab.training.training import BEST

SHARES = (0.5, 0.35, 0.15)
REFUSED = {
    "weights": "the weights are trained here; --start FILE trains on from weights",
    "panel": "a panel is fitted to weights that exist; fit one to the result, and calibrate again with it",
}
"""Settings of perception that a qualification refuses, and why."""
_TRIED = f"{STEPS}/levels.json"
_LOWEST_FLOOR = 0.01  # so that the precision-recall curve is complete


class QualifySettings(CandidateSettings):
    """An impossible value, which a step would refuse only after hours, raises pydantic's ``ValidationError``.

    ``data``: a COCO folder, or one with the parts learn, calibrate and test. ``training``: fields of
    :class:`TrainSettings` other than data and out. ``perception``: as the cell has it, without weights. ``near``, ``shares``,
    ``seed``: how one folder is divided.
    """

    data: Path
    novelty_epochs: int | None = Field(None, ge=0)
    """epochs of the novelty network; 0: only measure the packaged one. Default: 3, with few up to twice the training's"""
    base: Path | None = None
    """policy whose other limits are kept; default: config/limits.yaml"""
    robustness_images: int = Field(20, ge=0)
    """test pictures that are put into each circumstance; 0: robustness is not assessed"""
    min_removed: float = Field(0.5, ge=0, le=1)
    """least share of the stickers of the test part that is released without a person"""
    near: int = Field(checking.NEAR, ge=-1, le=32)
    """highest Hamming distance of the 64-bit hashes of near duplicates, which count as one laptop; -1: none do"""
    shares: tuple[float, ...] = SHARES

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        for name, why in REFUSED.items():
            if value := getattr(self.perception, name):
                raise ValueError(f"{name} = {value!r}: expected none, {why}")
        if min(self.shares) <= 0:
            raise ValueError(
                f"--split {','.join(map(str, self.shares))}: expected a share above 0 for each part"
            )
        return self


class Qualification(Candidate[QualifySettings]):
    """The steps in the folder of ``steps``, and what each found; a step is done when it is asked for."""

    @property
    def _base_file(self) -> Path:
        return self.settings.base or share_folder() / "config" / "limits.yaml"

    @cached_property
    def _base(self) -> Policy:
        return Policy.load(self._base_file)

    def run(self) -> Self:
        _ = self._base, self.check  # an unusable policy or data set is refused before anything is trained
        if self.shortfall:
            self._steps.tell(
                "levels", f"cannot be proved with these labels, whatever is trained: {self.shortfall}"
            )
        for step in (
            "training",
            "accuracy",
            "novelty",
            "calibration",
            "tried_levels",
            "policy_test",
            "robustness",
        ):
            getattr(self, step)
        return self

    @property
    def policy(self) -> Path | None:
        return self._policy_file if self.calibration.policy else None

    @property
    def shortfall(self) -> str:
        """How many more labels the guarantee takes, "" when there are enough."""
        return self.provable.describe_shortfall(self.settings.levels.alpha, self.settings.levels.beta)

    @cached_property
    def requirements(self) -> list[results.Requirement]:
        return results.requirements(
            self.settings.levels,
            self.settings.min_removed,
            self.novelty,
            self.calibration,
            self.policy_test,
            self.shortfall,
            self.accuracy,
        )

    @property
    def ready(self) -> bool:
        return all(one.met is not False for one in self.requirements)

    @cached_property
    def tried_levels(self) -> tuple[Levels, ...]:
        """Other levels that the same pictures have been calibrated to before; these are kept for the next call."""
        file = self._work / _TRIED
        part, levels = self._prints["calibrate"], self.settings.levels
        try:
            known = TypeAdapter(dict[str, list[Levels]]).validate_python(
                read_json(file) if file.exists() else {}
            )
        except ValidationError:
            raise InvalidInput(f"{file}: expected the levels of earlier calls; remove it") from None
        others = [one for one in known.get(part, []) if one != levels]
        write_file(file, json.dumps({part: [asdict(one) for one in (*others, levels)]}, indent=1))
        return tuple(others)

    @cached_property
    def _items(self) -> dict[str, list[LabelledImage]]:
        return {name: read_coco(self._parts[name]) for name in PARTS}

    @cached_property
    def _prints(self) -> dict[str, str]:
        return {name: fingerprint(items) for name, items in self._items.items()}

    @cached_property
    def _parts(self) -> dict[str, Path]:
        settings = self.settings
        if (given := parts_of(settings.data)) is not None:
            return given
        items = read_coco(settings.data)

        def make(folder: Path) -> results.DivideResult:
            seen = self._statistics(items)
            refuse_same_pixels({"": seen})
            divide(seen, folder, settings.shares, settings.near, settings.seed)
            laptops = Counter(
                item.workpiece_id or f"{name} {number}"
                for name in PARTS
                for number, item in enumerate(read_coco(folder / name))
            )
            return results.DivideResult(
                pictures=len(items), laptops=len(laptops), largest=max(laptops.values())
            )

        inputs = {"data": fingerprint(items), "shares": settings.shares, "near": settings.near}
        files = [f"{name}/annotations.json" for name in PARTS]
        self._steps.run("divide", inputs | {"seed": settings.seed}, results.DivideResult, make, files)
        return parts_in(self._work / "divide")

    def _statistics(self, items: list[LabelledImage]) -> list[checking.PictureStatistics]:
        return checking.picture_statistics(items, self._make_counter("reading", len(items)))

    @cached_property
    def check(self) -> results.CheckResult:
        def make(folder: Path) -> results.CheckResult:
            seen = {name: self._statistics(items) for name, items in self._items.items()}
            refuse_same_pixels(seen)
            labels = [
                f"{name}/{one.pictures[0].name}: {one.text}"
                for name, items in self._items.items()
                for one in checking.label_findings(items)
            ]
            near = near_in_two_parts(seen, self.settings.near) if self.settings.near >= 0 else []
            parts = {name: _part(items) for name, items in self._items.items()}
            return results.CheckResult(parts=parts, labels=tuple(labels), near=tuple(near))

        return self._steps.run(
            "check", self._prints | {"near": self.settings.near}, results.CheckResult, make
        )

    @cached_property
    def provable(self) -> Prospect:
        """What the labels of the calibrate part can prove, nothing where they are too few to be divided."""
        delta, laptops = self.settings.levels.delta, self.check.parts["calibrate"].laptops
        if laptops < 2:
            return Prospect(Units(0, 0), delta, laptops)
        return evidence([LabelledSource(self._parts["calibrate"])], delta).prospect

    def _train_settings(self, out: Path) -> TrainSettings:
        seen = self.settings.perception.model_dump(include={"model", "min_size", "device"})
        values = seen | {"seed": self.settings.seed} | self.settings.training
        return TrainSettings(data=(self._parts["learn"],), out=out, **values)

    @cached_property
    def training(self) -> results.TrainResult:
        def make(folder: Path) -> results.TrainResult:
            settings = self._train_settings(folder)
            best = self._train_on(settings)
            return results.TrainResult(
                model=settings.model,
                epochs=settings.epochs,
                pictures=len(self._items["learn"]),
                map50=best["map50"],
                chosen=best["epoch"],
                held_out=best["validation"]["images"],
            )

        asked = self._train_settings(Path()).model_dump(mode="json", exclude={"data", "out", "threads"})
        start = Path(asked["start"])
        asked |= {"start": file_digest(start)} if start.is_file() else {}
        inputs = {"learn": self._prints["learn"], "settings": asked}
        return self._steps.run("train", inputs, results.TrainResult, make, (BEST,))

    @cached_property
    def accuracy(self) -> results.AccuracyResult:
        settings = self.settings.perception.model_copy(update={"weights": str(self._trained)})

        def make(folder: Path) -> results.AccuracyResult:
            items = self._items["test"]
            advance = self._make_counter("evaluating", 2 * len(items))
            sharp = load_detector(settings.model_copy(update={"score_floor": _LOWEST_FLOOR}))
            one = evaluate_detector(sharp, items, advance)
            clusters = evaluate_passes(load_detector(settings), items, settings.cluster, advance)
            return results.AccuracyResult.of(one, clusters.accuracy, clusters.passes)

        inputs = self._identity() | {"test": self._prints["test"], "weights": file_digest(self._trained)}
        return self._steps.run("evaluate", inputs, results.AccuracyResult, make)

    @cached_property
    def novelty(self) -> results.NoveltyResult:
        settings, learn = self.settings, self._prints["learn"]
        inputs = {"learn": learn, "model": settings.perception.model, "seed": settings.seed}
        return self._learn_novelty(lambda: self._items["learn"], candidates.packaged_novelty(), inputs)

    @cached_property
    def calibration(self) -> results.CalibrationResult:
        levels, novelty = self.settings.levels, self.novelty

        def make(folder: Path) -> results.CalibrationResult:
            (folder / POLICY).unlink(missing_ok=True)
            assessed = self._assess_part("calibrate")
            try:
                base = candidates.base_without_novelty(self._base, novelty)
                return self._prove(assessed, folder / POLICY, base)
            except InvalidInput as error:
                return results.CalibrationResult(refused=str(error))

        inputs = {
            "calibrate": self._prints["calibrate"],
            "levels": [levels.alpha, levels.beta, levels.delta],
            "base": file_digest(self._base_file),
        }
        return self._steps.run("calibrate", inputs | self._identity(), results.CalibrationResult, make)

    def _prove(self, assessed: Assessed, file: Path, base: Policy) -> results.CalibrationResult:
        """The policy, in ``file``; InvalidInput when nothing can be fitted."""
        levels = self.settings.levels
        divided = Divided.of([assessed])
        kind = choose_kind(divided.fit, "isotonic").kind
        draft = fit_policy(
            divided.fit, base, FitSettings(kind=kind, level=levels.alpha, clean=levels.beta > 0)
        )
        trials = Trials(draft, divided.fit, divided.proof)
        alpha, beta = trials.lowest_levels(levels)
        wrongful, left = trials.attempts(levels)
        found = results.CalibrationResult(refused="", wrongful=wrongful, left=left, alpha=alpha, beta=beta)
        try:
            policy = trials.policy(levels)
        except InvalidInput as error:
            return found.model_copy(update={"refused": str(error)})
        signed = divided.sign(policy, self.settings.command)
        write_policy(signed, file)
        return found.model_copy(update={"policy": signed.hash})

    def _assess_part(self, part: str) -> Assessed:
        return self._assess(self._parts[part], f"assessing the {part} part")

    def _policy_inputs(self) -> dict[str, Any]:
        return {"test": self._prints["test"], "policy": self.calibration.policy} | self._identity()

    @cached_property
    def policy_test(self) -> results.PolicyTestResult | None:
        if self.policy is None:
            return None

        def make(folder: Path) -> results.PolicyTestResult:
            return results.PolicyTestResult.of(
                measure(self._assess_part("test").records, Policy.load(self._policy_file))
            )

        return self._steps.run("test", self._policy_inputs(), results.PolicyTestResult, make)

    @cached_property
    def robustness(self) -> results.RobustnessResult | None:
        count = self.settings.robustness_images
        if not count or self.policy is None:
            return None
        limits = Policy.load(self.policy)

        def make(folder: Path) -> results.RobustnessResult:
            spec, source = laptop_cell(), SourceSet.load(self._parts["test"])
            prepared = prepare(spec, source, folder, count, 2 * count, 1, self._progress)
            load = partial(CellSystem, self.perception, limits)
            found = assess(spec, prepared, folder, load, progress=self._progress)
            write_report(found, folder)
            named = {c.name for c in spec.circumstances}
            return results.RobustnessResult(
                finding=str(found.finding),
                images=len(prepared.chosen),
                circumstances={n: str(v) for n, v in found.by_circumstance.items() if n in named},
            )

        inputs = self._policy_inputs() | {"images": count}
        return self._steps.run("robustness", inputs, results.RobustnessResult, make, ("report.html",))


def _part(items: list[LabelledImage]) -> results.PartResult:
    balance = checking.class_balance(items)
    names = [item.workpiece_id or f"image {number}" for number, item in enumerate(items)]
    clean = {n for n, item in zip(names, items, strict=True) if ObjectClass.STICKER not in item.labels}
    logos, stickers, laptops = balance["logo"], balance["sticker"], len(set(names))
    return results.PartResult(
        pictures=len(items), laptops=laptops, logos=logos, stickers=stickers, clean=len(clean)
    )
