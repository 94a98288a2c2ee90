# SPDX-License-Identifier: Apache-2.0
"""From answers to a candidate: labels, training, novelty, calibration, comparison with the active bundle; each step kept."""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sticker_uq.calibration.fitting import FitSettings, fit_policy
from sticker_uq.calibration.making import Divided, write_policy
from sticker_uq.calibration.probability import choose_kind, class_observations, same_odds
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.detection.weights import network_settings, packaged_weights
from sticker_uq.evaluation import bundle_comparison
from sticker_uq.evaluation.metrics.decisions import DecisionCounts
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.audit import verify
from sticker_uq.gate.judge import once_peeled
from sticker_uq.io.coco import LabelledImage, read_coco
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq_lab.datasets.default_boxes import own_scales
from sticker_uq_lab.improving.biased import BiasedTrials, Population, too_few
from sticker_uq_lab.improving.labels import Noted, Part, divide, read_labelled, write_parts
from sticker_uq_lab.improving.visits import GLANCE_S, Group, Visit, all_visits, person_rows, screen
from sticker_uq_lab.kept_pieces import StepResult, file_digest
from sticker_uq_lab.qualifying import candidate as candidates
from sticker_uq_lab.qualifying.candidate import POLICY, Candidate, CandidateSettings
from sticker_uq_lab.qualifying.parts import fingerprint
from sticker_uq_lab.qualifying.results import NoveltyResult
from sticker_uq_lab.training.settings import TrainSettings
from sticker_uq_lab.training.training import BEST

Happened = NDArray[np.bool_]


class ImproveSettings(CandidateSettings):
    """``perception``, ``active_policy`` and ``active_hash``, the SHA-256 of a manifest, are of the active bundle.

    ``exposure``: pictures also trained on, so that nothing is forgotten; ``glance_s``: a faster answer teaches nothing;
    ``names``: whether the report names the operators.
    """

    active_policy: Path
    active_hash: str
    audit: tuple[Path, ...]
    recordings: tuple[Path, ...]
    newest: float = Field(7.0, ge=0, description="days whose laptops judge the candidate and never train it")
    topic: str | None = None
    data: tuple[Path, ...] = ()
    exposure: tuple[Path, ...] = ()
    old_test: Path | None = None
    """COCO folder on which the candidate must not be worse either"""
    novelty_epochs: int | None = Field(None, ge=0)
    """epochs of the novelty network; default: it is trained only if too weak for what the policy limits"""
    tolerance: float = Field(0.02, ge=0, le=1)
    """rise of a risk that a candidate may have and still be better"""
    names: bool = False
    seed: int = Field(0, ge=0, description="seed of the training")
    glance_s: float = GLANCE_S

    @model_validator(mode="after")
    def _has_no_panel(self) -> Self:
        if self.perception.panel:
            raise ValueError(
                "the active bundle has a panel, which is fitted to its weights: expected none; fit one to the candidate's "
                "weights, and calibrate by hand"
            )
        return self


LIMITS_ON_PROBABILITY = {
    "min_probability": (ObjectClass.STICKER, 0.5, 0.99),
    "notable_probability": (ObjectClass.STICKER, 0.02, 0.5),
    "min_logo_probability": (ObjectClass.LOGO, 0.5, 0.99),
}
"""Limits of a policy that is not calibrated: the class that each is on, and between what they may be moved."""

LEAST = {Part.LEARN: 2, Part.JUDGE: 1}
"""Pictures without which there is nothing to train and validate on, or to judge with."""


def _reasons(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {why}" for why, count in left_out.items()) or "none"


class LabelsResult(StepResult):
    """``pictures``: by part, what each stands for; ``population``: laptops that the policy asked about and that it released, of
    the proof and of the newest; ``left_out``: what could not be used, by reason; ``persons``: rows of counts.
    """

    pictures: dict[Part, tuple[Noted, ...]]
    population: dict[Part, tuple[int, int]]
    left_out: dict[str, int]
    persons: tuple[tuple[str, ...], ...]
    lost: tuple[str, ...]

    def __str__(self) -> str:
        origins = Counter(one.origin for part in self.pictures.values() for one in part)
        told = ", ".join(f"{count} {origin}" for origin, count in sorted(origins.items()))
        parts = ", ".join(f"{len(self.pictures[part])} to {part}" for part in Part)
        return f"pictures: {told}; {parts}; left out: {_reasons(self.left_out)}"


class TrainedResult(StepResult):
    pictures: int
    map50: float

    def __str__(self) -> str:
        return f"trained on {self.pictures} pictures of the cell, mAP@0.5 {self.map50:.3f} on some of them that were held out"


class CalibratedResult(StepResult):
    """``refused``: why there is no guarantee, "" where there is one; ``promise``: the guarantee in a line."""

    refused: str
    promise: str = ""

    def __str__(self) -> str:
        return self.promise or f"no guarantee: {self.refused}"


class ComparedResult(StepResult):
    compared: bundle_comparison.Compared
    model_hash: str
    settings_hash: str
    policy_hash: str

    def document(self, active: str) -> bundle_comparison.BundleComparison:
        """The comparison with the bundle whose manifest has the SHA-256 ``active``, as the candidate keeps it."""
        compared = self.compared
        verdict, reasons = compared.verdict()
        saved = compared.questions.difference()
        return bundle_comparison.BundleComparison(
            active=active,
            model_hash=self.model_hash,
            settings_hash=self.settings_hash,
            policy_hash=self.policy_hash,
            verdict=verdict,
            reasons=reasons,
            laptops=compared.questions.of,
            saved=(-100 * saved.value, -100 * saved.high, -100 * saved.low),
            more_laptops=compared.more_laptops(),
        )

    def __str__(self) -> str:
        verdict, reasons = self.compared.verdict()
        return f"{verdict}: {'; '.join(reasons)}"


class Improvement(Candidate[ImproveSettings]):
    """The steps in the folder of ``steps``, and what each found; a step is done when it is asked for."""

    def run(self, before_training: Callable[[], None] = lambda: None) -> Self:
        """All steps in their order; ``before_training`` is called when it is known that there are labels enough."""
        _ = self._policy, self.labels
        before_training()
        for step in ("training", "novelty", "calibration", "comparison"):
            getattr(self, step)
        return self

    @cached_property
    def _policy(self) -> Policy:
        return Policy.load(self.settings.active_policy)

    @property
    def policy(self) -> Path:
        return self._policy_file

    def _part(self, part: Part) -> Path:
        return self._work / "labels" / part

    @cached_property
    def labels(self) -> LabelsResult:
        settings = self.settings
        found = all_visits(settings.audit)

        def make(folder: Path) -> LabelsResult:
            for old in folder.iterdir():
                shutil.rmtree(old)
            visits, persons = screen(found, settings.glance_s)
            parts = divide(visits, self._policy.hash, settings.newest)
            left_out: Counter[str] = Counter()
            lost: list[str] = []

            def on_read(path: Path, remarks: Sequence[str], what: str) -> None:
                lost.extend([f"{path}: {what}"] if what else [])

            pictures = read_labelled(visits, parts, settings.recordings, settings.topic, on_read, left_out)
            noted = write_parts(folder, pictures)
            for part, least in LEAST.items():
                if len(noted[part]) < least:
                    counts = ", ".join(f"{len(notes)} to {other}" for other, notes in noted.items())
                    raise InvalidInput(
                        f"{len(noted[part])} pictures to {part} with, expected {least} or more: of {len(visits)} laptops "
                        f"{counts}; left out: {_reasons(left_out)}; spot checked laptops only prove. Record more laptops, or "
                        "change --newest"
                    )
            return LabelsResult(
                pictures={part: tuple(notes) for part, notes in noted.items()},
                population=_populations(visits, parts, self._policy.hash),
                left_out=dict(left_out),
                persons=tuple(person_rows(persons, settings.names)),
                lost=tuple(lost),
            )

        inputs = {
            "audit": [verify(folder).head for folder in settings.audit],
            "recordings": [_list_files(path) for path in settings.recordings],
            "policy": self._policy.hash,
            "newest": settings.newest,
            "glance_s": settings.glance_s,
            "names": settings.names,
            "topic": settings.topic,
        }
        files = [f"{part}/annotations.json" for part in (Part.LEARN, Part.JUDGE)]
        return self._steps.run("labels", inputs, LabelsResult, make, files)

    @cached_property
    def training(self) -> TrainedResult:
        settings, seen = self.settings, self._seen
        weights = Path(seen.weights) if seen.weights else packaged_weights(seen.model)
        folders = (self._part(Part.LEARN), *settings.data)
        given = seen.model_dump(include={"model", "min_size", "device", "threads"}) | {
            "seed": settings.seed,
            "start": seen.weights or "packaged",
            # others that fit the labels better would make the head forget what it knows
            "anchor_scales": own_scales(seen.model, network_settings(weights) if weights else {}),
            **settings.training,
        }

        def chosen(out: Path) -> TrainSettings:
            return TrainSettings(data=folders, exposure=settings.exposure, out=out, **given)

        def make(folder: Path) -> TrainedResult:
            best = self._train_on(chosen(folder))
            return TrainedResult(pictures=len(self.labels.pictures[Part.LEARN]), map50=best["map50"])

        inputs = {
            "settings": chosen(Path()).model_dump(
                mode="json", exclude={"out", "threads", "data", "exposure"}
            ),
            "data": [fingerprint(read_coco(folder)) for folder in (*folders, *settings.exposure)],
            "start": file_digest(Path(seen.weights)) if seen.weights else "packaged",
        }
        return self._steps.run("train", inputs, TrainedResult, make, (BEST,))

    @cached_property
    def novelty(self) -> NoveltyResult:
        settings, seen = self.settings, self._seen
        beside = Path(seen.weights).with_name(candidates.NOVELTY) if seen.weights else None
        start = beside if beside is not None and beside.is_file() else candidates.packaged_novelty()

        def items() -> list[LabelledImage]:
            folders = (self._part(Part.LEARN), *settings.data, *settings.exposure)
            wanted = seen.novelty or seen.photo
            return [item for part in folders for item in read_coco(part)] if wanted else []

        inputs = {"start": file_digest(start) if start else "", "novelty": seen.novelty}
        for_objects = self._policy.max_object_novelty < 1
        return self._learn_novelty(items, start, inputs, for_objects)

    @cached_property
    def calibration(self) -> CalibratedResult:
        levels = self.settings.levels

        def make(folder: Path) -> CalibratedResult:
            try:
                return self._prove(folder / POLICY)
            except InvalidInput as error:
                candidates.without_guarantee(self._limits_now(), folder / POLICY, self.novelty)
                return CalibratedResult(refused=str(error))

        inputs = {
            "levels": [levels.alpha, levels.beta, levels.delta],
            "base": file_digest(self.settings.active_policy),
            "labels": self.labels.model_dump(mode="json", exclude={"persons"}),
        }
        return self._steps.run("calibrate", inputs | self._identity(), CalibratedResult, make, (POLICY,))

    def _limits_now(self) -> Policy:
        """The limits of the active bundle, those on probabilities moved to where they mean the same with the new weights.

        Other weights are surer or less sure of the same objects. A policy that is calibrated keeps its limits: they, and its risk
        score, are of the active weights, and only a proof makes new ones.
        """
        active = self._policy
        if active.calibration is not None or active.risk is not None:
            return active
        parts = [part for part in (Part.FIT, Part.PROVE) if any(self._part(part).glob("images/*"))]
        before, now = (
            [
                record
                for part in parts
                for record in self._assess(
                    self._part(part), f"assessing with the {name} weights", side
                ).records
            ]
            for name, side in (("active", self._seen), ("new", self.perception))
        )
        moved = {}
        for name, (label, low, high) in LIMITS_ON_PROBABILITY.items():
            given = getattr(active, name)
            limit = same_odds(given, *(class_observations(own, label) for own in (before, now)))
            moved[name] = min(max(limit, low), high) if limit != given else given
        return active.model_copy(update=moved)

    def _prove(self, file: Path) -> CalibratedResult:
        levels, noted = self.settings.levels, self.labels.pictures
        base = candidates.base_without_novelty(self._policy, self.novelty)
        groups = {group: [one.group is group for one in noted[Part.PROVE]] for group in Group}
        population = Population(*self.labels.population[Part.PROVE])
        asked, checked = sum(groups[Group.ASKED]), sum(groups[Group.CHECKED])
        if why := too_few(len(noted[Part.FIT]), asked, checked, population, levels.alpha, levels.delta):
            raise InvalidInput(why)
        parts = [
            self._assess(self._part(part), f"assessing the laptops to {part}")
            for part in (Part.FIT, Part.PROVE)
        ]
        fit, proof = parts[0].records, parts[1].records
        kind = choose_kind(fit, "isotonic").kind
        draft = fit_policy(fit, base, FitSettings(kind=kind, level=levels.alpha, clean=levels.beta > 0))
        answered, checks = (
            [record for record, own in zip(proof, groups[group], strict=True) if own]
            for group in (Group.ASKED, Group.CHECKED)
        )
        trials = BiasedTrials(draft, fit, answered, checks, population)
        whole = Divided(tuple(parts), frozenset(range(len(fit))), tuple(fit), tuple(proof))
        policy = whole.sign(trials.policy(levels), self.settings.command)
        write_policy(policy, file)
        return CalibratedResult(refused="", promise=str(policy.guarantee))

    @cached_property
    def comparison(self) -> ComparedResult:
        settings, labels = self.settings, self.labels
        policy = Policy.load(self.policy)

        def make(folder: Path) -> ComparedResult:
            sides = ((self.perception, policy), (self._seen, self._policy))
            sets = (self._part(Part.JUDGE), "the newest laptops"), (settings.old_test, "the old test set")
            newest, old = (
                [self._count(folder, *side, f"assessing {name}") for side in sides] if folder else []
                for folder, name in sets
            )
            noted = labels.pictures[Part.JUDGE]
            groups = [[one.group is group for one in noted] for group in (Group.ASKED, Group.CHECKED)]
            first = newest[0][1][0].assessment
            risks = {}
            for name in bundle_comparison.RISKS:
                asked, checked = (
                    _pairs(*(side[0][name][np.array(own, bool)] for side in newest)) for own in groups
                )
                risks[name] = bundle_comparison.GroupedPairs(asked, checked, labels.population[Part.JUDGE])
            kinds = (bundle_comparison.QUESTIONS, *bundle_comparison.RISKS) if old else ()
            return ComparedResult(
                compared=bundle_comparison.Compared(
                    _pairs(*(side[0][bundle_comparison.QUESTIONS] for side in newest)),
                    risks,
                    {name: _pairs(*(side[0][name] for side in old)) for name in kinds},
                    _has_kept_promises(policy, self._policy),
                    settings.tolerance,
                ),
                model_hash=first.model_hash,
                settings_hash=first.settings_hash,
                policy_hash=policy.hash,
            )

        inputs = {
            "newest": fingerprint(read_coco(self._part(Part.JUDGE))),
            "population": labels.population[Part.JUDGE],
            "old": fingerprint(read_coco(settings.old_test)) if settings.old_test else "",
            "policy": policy.hash,
            "active": self.settings.active_hash,
            "tolerance": settings.tolerance,
        }
        return self._steps.run("compare", inputs | self._identity(), ComparedResult, make)

    def _count(
        self, folder: Path, perception: PerceptionSettings, policy: Policy, stage: str
    ) -> tuple[dict[str, Happened], tuple[Record, ...]]:
        """What happens with every laptop of the COCO ``folder``: by kind of event (L,) bool, and the records."""
        records = self._assess(folder, stage, perception).records
        units = units_of(records)
        happened = {
            name: np.zeros(units.max() + 1, bool)
            for name in (bundle_comparison.QUESTIONS, *bundle_comparison.RISKS)
        }
        free = policy.model_copy(update={"validity": None})
        for unit, record in zip(units.tolist(), records, strict=True):
            decision = judge(record.assessment, free)
            counts = DecisionCounts()
            counts.add(
                "", record.boxes, record.labels, decision, once_peeled(decision, record.assessment, free)
            )
            found = counts.measure()
            happened[bundle_comparison.QUESTIONS][unit] = found.asked.events  # the last picture is the end
            happened[bundle_comparison.DIRTY][unit] = found.left.events
            happened[bundle_comparison.WRONGFUL][unit] |= found.wrongful.events > 0
        return happened, records


def _pairs(candidate: Happened, active: Happened) -> bundle_comparison.Pairs:
    both, one, other = candidate & active, candidate & ~active, active & ~candidate
    return bundle_comparison.Pairs(int(both.sum()), int(one.sum()), int(other.sum()), len(candidate))


def _has_kept_promises(candidate: Policy, active: Policy) -> bool:
    """Whether all that the ``active`` policy promises, or both promises where it has none, is proved of the ``candidate``."""
    if candidate.guarantee is None or candidate.guarantee.wrongful_removal is None:
        return False
    given = active.guarantee
    before_of = (
        (given.wrongful_removal, given.sticker_left or given.missed_sticker) if given else (None, None)
    )
    for own, before in zip(
        (candidate.guarantee.wrongful_removal, candidate.guarantee.sticker_left), before_of, strict=True
    ):
        if before is not None and (own is None or own.level > before.level):
            return False
        if own is None and candidate.clean_without_operator:
            return False
    return True


def _populations(
    visits: Sequence[Visit], parts: Mapping[str, Part], policy_hash: str
) -> dict[Part, tuple[int, int]]:
    """Laptops that the policy ``policy_hash`` asked about and those that it released, of the newest and of all before."""
    found = {Part.PROVE: [0, 0], Part.JUDGE: [0, 0]}
    for visit in visits:
        if visit.policy_hash == policy_hash:
            part = Part.JUDGE if parts[visit.name] is Part.JUDGE else Part.PROVE
            found[part][visit.group is not Group.ASKED] += 1
    return {part: (counts[0], counts[1]) for part, counts in found.items()}


def _list_files(path: Path) -> list[tuple[str, int]]:
    """The files of a recording with their sizes, by which a changed one is noticed."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(file.name, file.stat().st_size) for file in files if file.is_file()]
