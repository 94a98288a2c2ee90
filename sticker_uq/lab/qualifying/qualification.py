# SPDX-License-Identifier: Apache-2.0
"""A qualification: check, train, evaluate, novelty network, calibrate, test, robustness, verdict."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from sticker_uq.calibration.fitting import Levels, Trials, fit_policy
from sticker_uq.calibration.making import Divided, assess_sources, evidence, policy_text, write_policy
from sticker_uq.calibration.measuring import measure
from sticker_uq.calibration.planning import Prospect, Units
from sticker_uq.calibration.probability import choose_kind
from sticker_uq.calibration.records import Assessed
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.weights import load_weights
from sticker_uq.evaluation.metrics.accuracy import evaluate_detector, evaluate_passes
from sticker_uq.gate import Policy
from sticker_uq.io.coco import LabelledImage, read_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.reading import read_json
from sticker_uq.io.share import share_folder
from sticker_uq.lab.datasets.checking import (
    NEAR,
    PictureStatistics,
    class_balance,
    label_findings,
    picture_statistics,
)
from sticker_uq.lab.datasets.importing.grouping import PARTS
from sticker_uq.lab.kept_pieces import STEPS, Steps, file_digest
from sticker_uq.lab.qualifying.parts import (
    Parts,
    divide,
    fingerprint,
    near_in_two_parts,
    parts_of,
    refuse_same_pixels,
)
from sticker_uq.lab.qualifying.results import (
    AccuracyResult,
    CalibrationResult,
    CheckResult,
    DivideResult,
    NoveltyResult,
    PartResult,
    PolicyTestResult,
    ProofResult,
    RobustnessResult,
    TrainResult,
)
from sticker_uq.lab.qualifying.verdict import Requirement, requirements
from sticker_uq.lab.robustness.assessment import assess, prepare
from sticker_uq.lab.robustness.frequencies import SourceSet
from sticker_uq.lab.robustness.robustness_report import write_report
from sticker_uq.lab.robustness.spec import laptop_cell
from sticker_uq.lab.robustness.systems import CellSystem
from sticker_uq.lab.training.checkpoint import STATE
from sticker_uq.lab.training.novelty_training import FEWEST, learn_novelty_network
from sticker_uq.lab.training.settings import TrainSettings
from sticker_uq.lab.training.training import BEST, train
from sticker_uq.novelty.network import NoveltyNetwork, packaged_file, read_network, save_network
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, ObjectClass

WEIGHTS, NOVELTY, POLICY = "weights.safetensors", "weights_novelty.safetensors", "policy.yaml"
SHARES = (0.5, 0.35, 0.15)
REFUSED = {
    "weights": "the weights are trained here; --start FILE trains on from weights",
    "panel": "a panel is fitted to weights that exist; fit one to the result, and calibrate again with it",
}
"""Settings of perception that a qualification refuses, and why."""
_BASE_MODEL = "ssdlite320_mobilenet_v3_large"
_TRIED = f"{STEPS}/levels.json"
_LOWEST_FLOOR = 0.01  # so that the precision-recall curve is complete

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""


@dataclass(frozen=True)
class QualifySettings:
    """What is asked for.

    ``data``: a COCO folder, or one with the parts learn, calibrate and test. ``training``: fields of
    :class:`TrainSettings` other than data and out. ``perception``: as the cell has it, without weights. ``novelty_start``: what
    the novelty network starts from. ``base``: policy whose other limits are kept, None for the packaged one.
    ``robustness_images``: of the test part in each circumstance, 0 for no assessment. ``min_removed``: least share of the
    stickers of the test part that must be released without a person. ``near``, ``shares``, ``seed``: how one folder is divided.
    """

    data: Path
    levels: Levels = field(default_factory=Levels)
    training: Mapping[str, Any] = field(default_factory=dict)
    perception: PerceptionSettings = field(default_factory=PerceptionSettings)
    novelty_start: Literal["packaged", "weights"] = "packaged"
    novelty_epochs: int | None = None
    base: Path | None = None
    robustness_images: int = 20
    min_removed: float = 0.5
    near: int = NEAR
    shares: tuple[float, ...] = SHARES
    seed: int = 0
    command: str = ""

    def check(self) -> None:
        """Raise :class:`InvalidInput` for what a step of the qualification would refuse only after hours."""
        for name, why in REFUSED.items():
            if value := getattr(self.perception, name):
                raise InvalidInput(f"{name} = {value!r}: expected none, {why}")
        if not 0.0 <= self.min_removed <= 1.0:
            raise InvalidInput(f"--min-removed {self.min_removed:g}: expected a share from 0 to 1")
        if self.robustness_images < 0:
            raise InvalidInput(f"--robustness-images {self.robustness_images}: expected 0 or more")
        if not self.levels.beta:
            raise InvalidInput(
                "--beta 0: expected above 0; `sticker-uq calibrate` makes a policy without that promise"
            )
        fewest = 0 if self.novelty_start == "packaged" else 1
        if self.novelty_epochs is not None and self.novelty_epochs < fewest:
            raise InvalidInput(f"--novelty-epochs {self.novelty_epochs}: expected {fewest} or more")
        if min(self.shares) <= 0:
            raise InvalidInput(
                f"--split {','.join(map(str, self.shares))}: expected a share above 0 for each part"
            )


@dataclass(frozen=True)
class Found:
    """All that a qualification found, and its verdict; ``policy``: the file of the policy with a guarantee, if there is one.

    ``base``: the policy whose other limits are kept. ``tried``: other levels that the same pictures were calibrated to before.
    """

    settings: QualifySettings
    check: CheckResult
    training: TrainResult
    accuracy: AccuracyResult
    novelty: NoveltyResult
    provable: Prospect
    calibration: CalibrationResult
    tested: PolicyTestResult | None
    robustness: RobustnessResult | None
    perception: PerceptionSettings
    policy: Path | None
    base: Path
    tried: tuple[Levels, ...] = ()

    @property
    def lacking(self) -> str:
        """How many more labels the guarantee takes, "" when there are enough."""
        return self.provable.lacking(self.settings.levels.alpha, self.settings.levels.beta)

    @cached_property
    def requirements(self) -> list[Requirement]:
        return requirements(
            self.settings.levels,
            self.settings.min_removed,
            self.novelty,
            self.calibration,
            self.tested,
            self.lacking,
            self.accuracy,
        )

    @property
    def ready(self) -> bool:
        return all(one.met is not False for one in self.requirements)


class Qualification:
    """The steps of a qualification in the folder of ``steps``, each of them done once for the same inputs.

    Raises :class:`InvalidInput` for unusable data or settings. ``stop``: whether to end after the next step of the training, with
    ``KeyboardInterrupt``. ``jobs``, ``ray_address``: where images are assessed, see :func:`assess_sources`.
    """

    def __init__(
        self,
        settings: QualifySettings,
        steps: Steps,
        progress: Progress = lambda stage, done, total: None,
        stop: Callable[[], bool] = lambda: False,
        jobs: int = 0,
        ray_address: str = "",
    ) -> None:
        settings.check()
        self._jobs, self._ray_address = jobs, ray_address
        self.settings, self._steps, self._progress, self._stop = settings, steps, progress, stop
        self._work = steps.work
        self._base_file = settings.base or share_folder() / "config" / "policy.yaml"
        self._base = Policy.load(self._base_file)

    def run(self) -> Found:
        check = self._check()
        provable = self._provable(check)
        if lacking := provable.lacking(self.settings.levels.alpha, self.settings.levels.beta):
            self._steps.tell("levels", f"cannot be proved with these labels, whatever is trained: {lacking}")
        training = self._train()
        accuracy = self._evaluate()
        novelty = self._novelty()
        calibration = self._calibrate(novelty)
        tried = self._tried_before()
        policy = self._work / "calibrate" / POLICY if calibration.policy else None
        tested = self._test(calibration) if policy else None
        robustness = self._robustness(policy, calibration) if policy else None
        return Found(
            settings=self.settings,
            check=check,
            training=training,
            accuracy=accuracy,
            novelty=novelty,
            provable=provable,
            calibration=calibration,
            tested=tested,
            robustness=robustness,
            perception=self._perception,
            policy=policy,
            base=self._base_file,
            tried=tried,
        )

    def _tried_before(self) -> tuple[Levels, ...]:
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
        with atomic_write(file, "w") as stream:
            json.dump({part: [asdict(one) for one in (*others, levels)]}, stream, indent=1)
        return tuple(others)

    @property
    def _perception(self) -> PerceptionSettings:
        return self.settings.perception.model_copy(update={"weights": str(self._weights)})

    @property
    def _weights(self) -> Path:
        return self._work / "novelty" / WEIGHTS

    @cached_property
    def _items(self) -> dict[str, list[LabelledImage]]:
        return {name: read_coco(getattr(self._parts, name)) for name in PARTS}

    @cached_property
    def _prints(self) -> dict[str, str]:
        return {name: fingerprint(items) for name, items in self._items.items()}

    @cached_property
    def _parts(self) -> Parts:
        settings = self.settings
        if (given := parts_of(settings.data)) is not None:
            return given
        items = read_coco(settings.data)

        def make(folder: Path) -> DivideResult:
            seen = self._seen(items)
            refuse_same_pixels({"": seen})
            divide(seen, folder, settings.shares, settings.near, settings.seed)
            laptops = Counter(
                item.workpiece_id or f"{name} {number}"
                for name in PARTS
                for number, item in enumerate(read_coco(folder / name))
            )
            return DivideResult(pictures=len(items), laptops=len(laptops), largest=max(laptops.values()))

        inputs = {"data": fingerprint(items), "shares": settings.shares, "near": settings.near}
        files = [f"{name}/annotations.json" for name in PARTS]
        self._steps.run("divide", inputs | {"seed": settings.seed}, DivideResult, make, files)
        return Parts(*(self._work / "divide" / name for name in PARTS))

    def _seen(self, items: list[LabelledImage]) -> list[PictureStatistics]:
        return picture_statistics(items, counting("reading", len(items), self._progress))

    def _check(self) -> CheckResult:
        def make(folder: Path) -> CheckResult:
            seen = {name: self._seen(items) for name, items in self._items.items()}
            refuse_same_pixels(seen)
            labels = [
                f"{name}/{one.pictures[0].name}: {one.text}"
                for name, items in self._items.items()
                for one in label_findings(items)
            ]
            near = near_in_two_parts(seen, self.settings.near) if self.settings.near >= 0 else []
            parts = {name: _part(items) for name, items in self._items.items()}
            return CheckResult(parts=parts, labels=tuple(labels), near=tuple(near))

        return self._steps.run("check", self._prints | {"near": self.settings.near}, CheckResult, make)

    def _training(self, data: Path, out: Path) -> TrainSettings:
        seen = self.settings.perception
        values = {
            "model": seen.model,
            "min_size": seen.min_size,
            "device": seen.device,
            "seed": self.settings.seed,
        }
        return TrainSettings(data=(data,), out=out, **(values | dict(self.settings.training)))

    def _train(self) -> TrainResult:
        def make(folder: Path) -> TrainResult:
            settings = self._training(self._parts.learn, folder)
            best = train_on(settings, self.settings.command, self._steps, self._progress, self._stop)
            return TrainResult(
                model=settings.model,
                epochs=settings.epochs,
                pictures=len(self._items["learn"]),
                map50=best["map50"],
                chosen=best["epoch"],
                held_out=best["validation"]["images"],
            )

        inputs = {"learn": self._prints["learn"], "settings": self._training_inputs()}
        return self._steps.run("train", inputs, TrainResult, make, (BEST,))

    def _training_inputs(self) -> dict[str, Any]:
        settings = self._training(Path(), Path()).model_dump(mode="json", exclude={"data", "out", "threads"})
        start = Path(settings["start"])
        return settings | ({"start": file_digest(start)} if start.is_file() else {})

    def _evaluate(self) -> AccuracyResult:
        weights = self._work / "train" / BEST
        settings = self.settings.perception.model_copy(update={"weights": str(weights)})

        def make(folder: Path) -> AccuracyResult:
            items = self._items["test"]
            advance = counting("evaluating", 2 * len(items), self._progress)
            sharp = load_detector(settings.model_copy(update={"score_floor": _LOWEST_FLOOR}))
            one = evaluate_detector(sharp, items, advance)
            clusters = evaluate_passes(load_detector(settings), items, settings.cluster, advance)
            return AccuracyResult.of(one, clusters.accuracy, clusters.passes)

        inputs = {"test": self._prints["test"], "weights": file_digest(weights)}
        return self._steps.run("evaluate", inputs | self._seen_as(), AccuracyResult, make)

    def _seen_as(self) -> dict[str, Any]:
        return {"perception": self.settings.perception.model_dump(mode="json", exclude={"threads"})}

    def _novelty(self) -> NoveltyResult:
        settings, trained = self.settings, self._work / "train" / BEST

        def make(folder: Path) -> NoveltyResult:
            file = packaged_file(_BASE_MODEL)
            start = read_network(file) if settings.novelty_start == "packaged" and file else None
            return novelty_beside(
                trained, self._items["learn"], settings.perception, start, settings.novelty_epochs, settings.seed, folder,
                self._progress,
            )  # fmt: skip

        inputs = {
            "learn": self._prints["learn"],
            "weights": file_digest(trained),
            "model": settings.perception.model,
            "start": settings.novelty_start,
            "epochs": settings.novelty_epochs,
            "seed": settings.seed,
        }
        return self._steps.run("novelty", inputs, NoveltyResult, make, (WEIGHTS,))

    def _provable(self, check: CheckResult) -> Prospect:
        """What the labels of the calibrate part can prove, nothing where they are too few to be divided."""
        delta, laptops = self.settings.levels.delta, check.parts["calibrate"].laptops
        if laptops < 2:
            return Prospect(Units(0, 0), delta, laptops)
        return evidence([LabelledSource(self._parts.calibrate)], delta).prospect

    def _with_weights(self) -> dict[str, Any]:
        novelty = self._work / "novelty" / NOVELTY
        files = [file_digest(path) for path in (self._weights, novelty) if path.is_file()]
        return {"weights": files} | self._seen_as()

    def _calibrate(self, novelty: NoveltyResult) -> CalibrationResult:
        levels = self.settings.levels

        def make(folder: Path) -> CalibrationResult:
            (folder / POLICY).unlink(missing_ok=True)
            assessed = self._assessed("calibrate")
            try:
                return self._proved(assessed, folder / POLICY, base_without_novelty(self._base, novelty))
            except InvalidInput as error:
                return CalibrationResult(refused=str(error))

        inputs = {
            "calibrate": self._prints["calibrate"],
            "levels": [levels.alpha, levels.beta, levels.delta],
            "base": file_digest(self._base_file),
        }
        return self._steps.run("calibrate", inputs | self._with_weights(), CalibrationResult, make)

    def _proved(self, assessed: Sequence[Assessed], file: Path, base: Policy) -> CalibrationResult:
        """The policy, in ``file``; InvalidInput when nothing can be fitted."""
        levels = self.settings.levels
        divided = Divided.of(assessed)
        kind = choose_kind(divided.fit, "isotonic").kind
        draft = fit_policy(divided.fit, base, kind, level=levels.alpha)
        trials = Trials(draft, divided.fit, divided.proof)
        alpha, beta = trials.lowest_levels(levels.delta)
        proofs = map(ProofResult.of, trials.attempts(levels))
        found = CalibrationResult(
            refused="", wrongful=next(proofs), missed=next(proofs), alpha=alpha, beta=beta
        )
        try:
            policy = trials.policy(levels)
        except InvalidInput as error:
            return found.model_copy(update={"refused": str(error)})
        signed = divided.signed(policy, self.settings.command)
        write_policy(signed, file)
        return found.model_copy(update={"policy": signed.hash})

    def _assessed(self, part: str) -> list[Assessed]:
        source = LabelledSource(getattr(self._parts, part))
        advance = counting(f"assessing the {part} part", len(source), self._progress)
        cache = self._work / "assessments.sqlite"
        return assess_sources([source], self._perception, cache, advance, self._jobs, self._ray_address)

    def _test(self, calibration: CalibrationResult) -> PolicyTestResult:
        def make(folder: Path) -> PolicyTestResult:
            policy = Policy.load(self._work / "calibrate" / POLICY)
            records = [record for part in self._assessed("test") for record in part.records]
            return PolicyTestResult.of(measure(records, policy))

        inputs = {"test": self._prints["test"], "policy": calibration.policy} | self._with_weights()
        return self._steps.run("test", inputs, PolicyTestResult, make)

    def _robustness(self, policy: Path | None, calibration: CalibrationResult) -> RobustnessResult | None:
        count = self.settings.robustness_images
        if not count or policy is None:
            return None
        limits = Policy.load(policy)

        def make(folder: Path) -> RobustnessResult:
            spec, source = laptop_cell(), SourceSet.load(self._parts.test)
            prepared = prepare(spec, source, folder, count, 2 * count, 1, self._progress)
            load = partial(CellSystem, self._perception, limits)
            found = assess(spec, prepared, folder, load, progress=self._progress)
            write_report(found, folder)
            named = {c.name for c in spec.circumstances}
            return RobustnessResult(
                finding=str(found.finding),
                images=len(prepared.chosen),
                circumstances={n: str(v) for n, v in found.by_circumstance.items() if n in named},
            )

        inputs = {"test": self._prints["test"], "policy": calibration.policy, "images": count}
        return self._steps.run(
            "robustness", inputs | self._with_weights(), RobustnessResult, make, ("report.html",)
        )


def counting(stage: str, total: int, progress: Progress) -> Callable[[], None]:
    """What is called after each of ``total`` pieces of a stage."""
    done = iter(range(1, total + 1))
    return lambda: progress(stage, next(done), total)


def train_on(
    settings: TrainSettings, command: str, steps: Steps, progress: Progress, stop: Callable[[], bool]
) -> dict[str, Any]:
    """Train as ``settings`` say, from where an earlier training was stopped if one was; what the best weights say of themselves.

    ``map50`` is NaN where it was not measured.
    """
    resume = (settings.out / STATE).exists()
    finished = train(
        settings,
        resume=resume,
        command=command,
        say=lambda line: steps.tell("train", line) if resume else None,
        on_step=lambda step: progress("training", step.step, step.steps),
        stop=stop,
    )
    if not finished:
        raise KeyboardInterrupt
    best = load_weights(settings.out / BEST)[1]
    return best | {"map50": float("nan") if best.get("map50") is None else float(best["map50"])}


def novelty_beside(
    trained: Path,
    items: Sequence[LabelledImage],
    perception: PerceptionSettings,
    start: NoveltyNetwork | None,
    epochs: int | None,
    seed: int,
    folder: Path,
    progress: Progress,
    for_objects: bool = True,
) -> NoveltyResult:
    """Copy the weights ``trained`` to ``folder`` and put the novelty network for them beside, if there are pictures enough.

    ``epochs`` None: the network ``start`` is trained only if it is too weak for scenes or, where ``for_objects``, for these.
    """
    shutil.copyfile(trained, folder / WEIGHTS)
    if len(items) < FEWEST:
        why = f"{len(items)} pictures to learn from, expected {FEWEST} or more"
        return NoveltyResult(objects=(0.5, 0.0, 1.0), scenes=(0.5, 0.0, 1.0), pictures=0, weakness=why)
    own = perception.model == _BASE_MODEL
    detector = load_detector(
        perception.model_copy(update={"weights": str(trained)})
        if own
        else PerceptionSettings(device=perception.device)
    )
    learned = partial(learn_novelty_network, detector, items, start, seed=seed, progress=progress)
    network = learned(0 if start is not None and epochs is None else epochs)
    quality = network.quality
    if (
        epochs is None
        and start is not None
        and quality is not None
        and (quality.weakness or (for_objects and quality.objects_weakness))
    ):
        network = learned(None)
        quality = network.quality
    assert quality is not None
    save_network(network, detector, folder / NOVELTY)
    areas = [(one.value, one.low, one.high) for one in (quality.objects, quality.scenes)]
    return NoveltyResult(
        objects=areas[0],
        scenes=areas[1],
        pictures=quality.pictures,
        weakness=quality.weakness,
        objects_weakness=quality.objects_weakness,
    )


def base_without_novelty(base: Policy, novelty: NoveltyResult) -> Policy:
    """``base``, which releases where novelty is not measured if no network can be used, and has no limit on that of objects if
    it tells scenes alone.

    The bundle and the gate warn of the first, and a real arm does not move on it without ``allow_uncalibrated``.
    """
    if novelty.weakness:
        return base.model_copy(update={"unmeasured_novelty": "release"})
    return base.model_copy(update={"max_object_novelty": 1.0}) if novelty.objects_weakness else base


def without_guarantee(base: Policy, file: Path, novelty: NoveltyResult) -> Path:
    """Write the limits of ``base``, which guarantee nothing, to ``file``; returns it."""
    limits = base_without_novelty(base, novelty)
    plain = limits.model_copy(
        update={"guarantee": None, "validity": None, "provenance": None, "reference": None}
    )
    file.write_text(
        f"# Limits without a guarantee for these weights.\n{policy_text(plain)}", encoding="utf-8"
    )
    return file


def _part(items: list[LabelledImage]) -> PartResult:
    balance = class_balance(items)
    names = [item.workpiece_id or f"image {number}" for number, item in enumerate(items)]
    clean = {
        name
        for name, item in zip(names, items, strict=True)
        if not (item.labels == ObjectClass.STICKER).any()
    }
    return PartResult(
        pictures=len(items),
        laptops=len(set(names)),
        logos=balance["logo"],
        stickers=balance["sticker"],
        clean=len(clean),
    )
