# SPDX-License-Identifier: Apache-2.0
"""How a policy file comes from labelled images: the parts of the data, what perception says about them, and the file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import yaml

from sticker_uq.calibration.answers import About
from sticker_uq.calibration.asked import AskedPictures
from sticker_uq.calibration.planning import FIT_SHARE, Prospect, count_units
from sticker_uq.calibration.records import Assessed, Record, join_labels, number_units, see, units_of
from sticker_uq.evaluation.executors import executor
from sticker_uq.evaluation.replay.assessing import assess_apart, identity_of, one_by_one, process_count
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import DataSet, Provenance, Validity
from sticker_uq.gate.policy.reference import write_reference
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.share import versions
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import IntArray, InvalidInput, ObjectClass, SceneAssessment

_HEADER = "# Made by `sticker-uq calibrate`, see `provenance`. Changing a number invalidates `guarantee`.\n"
_PACKAGES = ("torch", "torchvision", "numpy", "scipy", "mapie", "hdbscan")
OTHER_SHARES = (0.45, 0.35, 0.5, 0.3, 0.55, 0.25, 0.6, 0.2, 0.15, 0.1)
"""Shares to fit on that are named where the one given leaves too few laptops to one of the parts."""
_ROLES: tuple[Literal["fit", "certificate"], ...] = ("fit", "certificate")


@dataclass(frozen=True)
class LabelEvidence:
    """What the labels alone say: ``images``, whether each shows a sticker, and what the laptops of the proof can prove.

    ``at_most``: only the images tell which laptop they show, so that there may be fewer. ``answered``: some have answers in place
    of labels. ``others``: what they prove when divided by other shares.
    """

    images: int
    all_with_sticker: bool
    at_most: bool
    answered: bool
    prospect: Prospect
    others: tuple[Prospect, ...] = ()

    def text(self) -> str:
        units, answered = self.prospect.proof, " or answered" if self.answered else ""
        return (
            f"{self.images} labelled{answered} images; in the proof {'at most ' if self.at_most else ''}{units.laptops} laptops, "
            f"{units.with_sticker} of them with a sticker: {self.prospect.text()}"
        )

    def check(self, alpha: float, beta: float) -> None:
        """Raise :class:`InvalidInput` unless these labels can prove ``alpha`` and ``beta``."""
        enough = [one.share for one in self.others if not one.describe_shortfall(alpha, beta)]
        self.prospect.check(
            alpha, beta, f", or give --fit-share {enough[0]:g}, with which these suffice" if enough else ""
        )
        if self.all_with_sticker and beta and self.prospect.share:
            raise InvalidInput(
                "no labelled image shows a laptop without stickers: the cut-off for clean laptops needs some; --beta 0 goes "
                "without, and a person checks every clean laptop"
            )


def evidence(
    sources: Sequence[LabelledSource | AskedPictures],
    delta: float,
    share: float = FIT_SHARE,
    seed: int = 0,
) -> LabelEvidence:
    """What labels or answers of ``sources`` can prove with confidence 1 - ``delta``; InvalidInput for too few to split.

    With ``share`` 0 all of them prove.
    """
    images = [image for source in sources for image in _images(source)]
    laptops = number_units([workpiece for workpiece, _ in images])
    stickers = np.array([sticker for _, sticker in images], bool)
    answered = any(isinstance(source, AskedPictures) for source in sources)
    # answers may be about pictures that are not there any more
    at_most = answered or any(source.workpieces for source in sources)

    def divide(share: float) -> Prospect:
        fit, proof = split(laptops, share, seed)
        units = count_units(laptops[proof], stickers[proof])
        if at_most:  # the images may be of fewer laptops, and split in another way
            units = replace(units, with_sticker=min(units.laptops, int(stickers.sum())))
        return Prospect(units, delta, len(np.unique(laptops[fit])), share)

    count = len(np.unique(laptops))
    others = [one for one in OTHER_SHARES if share and 0 < round(one * count) < count]
    return LabelEvidence(
        len(images), bool(stickers.all()), at_most, answered, divide(share), tuple(map(divide, others))
    )


def _images(source: LabelledSource | AskedPictures) -> list[tuple[str, bool]]:
    """Of every image of ``source`` its laptop, "" if unknown, and whether it shows a sticker."""
    if isinstance(source, AskedPictures):
        return [("", said.sticker_count > 0) for said in source.answers.values()]
    return [
        (
            "" if source.workpieces else source.workpiece_of(item, 0),
            bool((item.labels == ObjectClass.STICKER).any()),
        )
        for item in source.items.values()
    ]


def assess_sources(
    sources: Sequence[LabelledSource | AskedPictures],
    settings: PerceptionSettings,
    cache: Path,
    progress: Callable[[], None] = lambda: None,
    jobs: int = 0,
    ray_address: str = "",
    need_novelty: bool = False,
) -> list[Assessed]:
    """What perception says about all images of ``sources`` with labels or answers, see :func:`see_sources`."""
    seen = see_sources(sources, settings, cache, progress, jobs, ray_address, need_novelty)
    assessed = [
        source.records(found) if isinstance(source, AskedPictures) else join_labels(source, found)
        for source, found in zip(sources, seen, strict=True)
    ]
    refuse_repeated(assessed)
    return assessed


def see_sources(
    sources: Sequence[LabelledSource | AskedPictures],
    settings: PerceptionSettings,
    cache: Path,
    progress: Callable[[], None] = lambda: None,
    jobs: int = 0,
    ray_address: str = "",
    need_novelty: bool = False,
) -> list[dict[str, SceneAssessment]]:
    """What perception with ``settings`` says about all images of each source, by name; the file ``cache`` keeps it between runs.

    ``jobs``: processes that share the images, 0: automatic; ``ray_address``: a Ray cluster instead, see
    :func:`sticker_uq.evaluation.executors.executor`. Raises what the executor raises, and :class:`InvalidInput` for an image that
    cannot be assessed and, before any is assessed, for answers about other weights or settings, and where ``need_novelty`` and no
    novelty network can be used.
    """
    perception = load_perception(settings)
    if need_novelty and perception.novelty_problem:
        raise InvalidInput(
            f"{perception.novelty_problem}. The base policy releases nothing without; one with unmeasured_novelty: release, "
            "given with --base, does"
        )
    about = About.of(perception)
    for source in sources:
        if isinstance(source, AskedPictures):
            source.refuse_others(about)
    processes = jobs or process_count(settings, sum(map(len, sources)))
    task = partial(assess_apart, settings=settings.with_absolute_paths(), identity=identity_of(perception))
    with ExitStack() as stack:
        known = stack.enter_context(JsonStore(cache))
        spread = processes > 1 or ray_address
        execute = stack.enter_context(executor(processes, ray_address)) if spread else None

        def run(images: ImageSource) -> Iterator[tuple[SourceImage, SceneAssessment]]:
            return one_by_one(images, perception) if execute is None else execute(task, images)

        identity = f"{perception.model_hash}:{perception.settings_hash}:{perception.panel_hash}"
        return [see(source, run, known, identity, progress) for source in sources]


def refuse_repeated(assessed: Sequence[Assessed]) -> None:
    """Raise :class:`InvalidInput` for a duplicate among the labelled images, which could both fit and prove a policy."""
    seen: dict[str, str] = {}
    for part in assessed:
        for record in part.records:
            name = f"{record.name} of {part.source}"
            first = seen.setdefault(record.assessment.image_digest, name)
            if first != name:
                raise InvalidInput(f"image {name} has the same pixels as {first}: expected every image once")


def split(units: IntArray, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices of the images to fit on and of those to prove with, ascending; images of one unit (N,) stay together.

    All prove with a ``share`` of 0.
    """
    laptops = len(np.unique(units))
    order = np.random.default_rng(seed).permutation(laptops)
    fit = round(laptops * share)
    if share and not 0 < fit < laptops:
        raise InvalidInput(f"{laptops} laptops: expected enough to split them into two parts")
    chosen = np.isin(units, order[:fit])
    return np.flatnonzero(chosen).tolist(), np.flatnonzero(~chosen).tolist()


@dataclass(frozen=True)
class Divided:
    """The assessed images of all sources, divided into those to fit on and those to prove with."""

    assessed: tuple[Assessed, ...]
    fit_numbers: frozenset[int]
    fit: tuple[Record, ...]
    proof: tuple[Record, ...]

    @classmethod
    def of(cls, assessed: Sequence[Assessed], share: float = FIT_SHARE, seed: int = 0) -> Divided:
        """The images divided by laptop, to fit and to prove with; :class:`InvalidInput` when there are too few."""
        everything = [record for part in assessed for record in part.records]
        fit, proof = split(units_of(everything), share, seed)
        parts = (tuple(everything[i] for i in part) for part in (fit, proof))
        return cls(tuple(assessed), frozenset(fit), *parts)

    @classmethod
    def apart(cls, fit: Sequence[Assessed], proof: Sequence[Assessed]) -> Divided:
        """The images of ``fit`` to fit on and those of ``proof`` to prove with; :class:`InvalidInput` for a laptop in both."""
        both = [tuple(record for part in parts for record in part.records) for parts in (fit, proof)]
        fitted, proved = ({record.workpiece for record in records} - {""} for records in both)
        if common := sorted(fitted & proved):
            raise InvalidInput(
                f"laptop {common[0]} is in the images to fit on and in those of the proof: expected one of them"
            )
        return cls((*fit, *proof), frozenset(range(len(both[0]))), *both)

    def numbers_of(self, sources: Collection[str], fit: bool) -> list[int]:
        """The numbers in ``fit``, or else in ``proof``, of the images of ``sources``."""
        return [n for n, source in enumerate(self._sources(fit)) if source in sources]

    def _sources(self, fit: bool) -> Iterator[str]:
        of = (part.source for part in self.assessed for _ in part.records)
        return (source for number, source in enumerate(of) if (number in self.fit_numbers) is fit)

    def proof_by_source(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        for source, record in zip(self._sources(False), self.proof, strict=True):
            found.setdefault(source, []).append(record)
        return found

    def sign(self, policy: Policy, command: str, camera: str = "", valid_days: int = 0) -> Policy:
        """``policy`` with what it is valid for (weights, settings, device, ``camera``, days, 0 for ever) and its origin."""
        first = (self.fit or self.proof)[0].assessment
        today = dt.datetime.now(dt.UTC).date()
        return policy.model_copy(
            update={
                "validity": Validity(
                    model=first.model,
                    model_hash=first.model_hash,
                    settings_hash=first.settings_hash,
                    device=first.device_kind,
                    precision=first.precision,
                    panel_hash=first.panel_hash or None,
                    camera=camera,
                    until=today + dt.timedelta(days=valid_days) if valid_days else None,
                ),
                "provenance": Provenance(
                    command=command,
                    created=today,
                    data=tuple(self._data_sets()),
                    versions=versions("sticker_uq", *_PACKAGES),
                ),
            }
        )

    def _data_sets(self) -> Iterator[DataSet]:
        start = 0
        for part in self.assessed:
            numbers = range(start, start + len(part.records))
            start += len(part.records)
            for role in _ROLES:
                count = sum((n in self.fit_numbers) == (role == "fit") for n in numbers)
                if count:
                    yield DataSet(role=role, source=part.source, images=count, fingerprint=part.fingerprint)


def write_policy(policy: Policy, path: Path, heading: str = _HEADER) -> None:
    """Write ``policy`` to ``path`` and its reference, if it has one, to the file beside it."""
    values = policy.model_dump(mode="json", exclude_none=True)
    with atomic_write(path, "w") as stream:
        if policy.reference is not None:
            values["reference"] = write_reference(policy.reference, path)
        stream.write(heading)
        yaml.safe_dump(
            values, stream, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True
        )
