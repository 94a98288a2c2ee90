# SPDX-License-Identifier: Apache-2.0
"""The image pipeline of perception: from pixels to an assessment."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sticker_uq.detection import NonFiniteOutput, StochasticDetector, load_detector
from sticker_uq.detection.deterministic_pass import DeterministicPass
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.device_errors import device_broken, out_of_memory
from sticker_uq.dil import localize
from sticker_uq.monitors.folder import load_panel
from sticker_uq.monitors.objects import Objects
from sticker_uq.monitors.panel import observe_objects
from sticker_uq.perception.exposure import measure_exposure
from sticker_uq.perception.image_facts import ImageFacts, Shot, check_picture, image_digest
from sticker_uq.perception.novelty import ImageNovelty, NoveltyEstimator
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import (
    DeviceFailed,
    Exposure,
    ImageUncertainty,
    InvalidInput,
    Localization,
    ObservedObject,
    SceneAssessment,
    Status,
    StochasticSamples,
)
from sticker_uq.uncertainty import image_uncertainty, observe

LEFT_OUT = "distinctive localization was left out of this image"
"""Status text of an OK assessment without it, because of ``dil_every``."""

WARM_UP_SIZE = (480, 640)
"""Height and width of the picture of :meth:`Perception.warm_up`, px."""


class Perception:
    """Assesses images with one detector. Not thread-safe; ``settings`` are those it was made from.

    The same pixels, settings, weights and machine give the same assessment, byte for byte but for the timings: the dropout
    masks of pass t follow from the pixels, ``settings.seed`` and t alone. Another number of torch threads or another processor
    may round differently, and so does a GPU on which memory became short (:attr:`shortage`).

    An assessment does not depend on the images that are computed together with it (:meth:`assess_together`).
    """

    def __init__(self, settings: PerceptionSettings, detector: StochasticDetector | None = None) -> None:
        """Load the detector that ``settings`` describe, or take ``detector``, which was made from the same settings.

        Raises :class:`InvalidInput` when weights or device cannot be used, when the panel was fitted for another detector, or
        when larger models are named to escalate to: that is :class:`~sticker_uq.perception.cascade.Cascade`'s part.
        """
        if settings.escalate_to:
            raise InvalidInput(f"escalate_to is {settings.escalate_to!r}, expected none for a single model")
        self.settings = settings
        self._detector = load_detector(settings) if detector is None else detector
        self._novelty = NoveltyEstimator(settings, self._detector)
        if settings.monitors and not settings.panel:
            raise InvalidInput(
                f"monitors is {settings.monitors!r}, expected the folder that they are in as panel"
            )
        self._panel = load_panel(settings.panel, settings.votes, self._detector) if settings.panel else None
        self._chunk = self._detector.chunk
        self._images = self._detector.images_at_once
        self._beside = ThreadPoolExecutor(1, "measuring")

    @property
    def model_hash(self) -> str:
        """SHA-256 of the weights that perception uses, hex."""
        return self._detector.weights_hash

    @property
    def settings_hash(self) -> str:
        """SHA-256 of all else that changes perception's result, hex: the settings and the novelty network."""
        return self._novelty.settings_hash

    @property
    def novelty_problem(self) -> str:
        """Why perception measures no novelty, although it should; empty when it does, or when that is switched off."""
        return self._novelty.problem

    @property
    def votes(self) -> tuple[str, ...]:
        """Names of the monitors with a vote in perception's panel."""
        return () if self._panel is None else tuple(voter.name for voter in self._panel.voters)

    @property
    def panel_hash(self) -> str:
        """Digest of perception's panel and who of it votes, SHA-256, hex; empty without one."""
        return "" if self._panel is None else self._panel.hash

    @property
    def device(self) -> str:
        """What perception computes on, in words: "cpu", or as in "cuda:0 NVIDIA H200"."""
        return self._detector.device_name

    @property
    def shortage(self) -> str:
        """What the device's memory did not suffice for in perception, in words; "" where it did."""
        detector = self._detector
        enough = [
            f"{now} {name if now == 1 else names} at once, not for {asked}"
            for now, asked, name, names in (
                (self.images_at_once, self._images, "image", "images"),
                (detector.chunk, self._chunk, "pass", "passes"),
            )
            if now < asked
        ]
        return f"the memory of {detector.device} suffices for {' and for '.join(enough)}" if enough else ""

    @property
    def images_at_once(self) -> int:
        """Images of one size that perception computes together; 1 on a processor."""
        return self._detector.images_at_once

    @property
    def detector(self) -> StochasticDetector:
        """The detector of this perception."""
        return self._detector

    def warm_up(self) -> SceneAssessment:
        """Let perception assess an empty image, so that the first real one is not slower than the others."""
        return self.assess(np.zeros((*WARM_UP_SIZE, 3), np.uint8))

    def assess(
        self,
        image: NDArray[np.uint8],
        stamp_ns: int = 0,
        frame_id: str = "",
        keep_saliency: bool = False,
        facts: ImageFacts | None = None,
    ) -> SceneAssessment:
        """Perception's assessment of ``image`` (H, W, 3) uint8 BGR.

        ``facts``: those of ``image`` that were measured beforehand; the others are measured while the network encodes. Stamp
        and frame are copied. The saliency map stays in the result if ``keep_saliency``. The status is DEGRADED when the
        distinctive localization is switched off or undefined or novelty cannot be measured, and FAILED when the network's output
        is NaN or infinite or the device's memory does not suffice, not even for a single pass. Raises :class:`InvalidInput` for
        anything that is no such image, and :class:`DeviceFailed` when the device cannot be used any more by this process.
        """
        (scene,) = self.assess_together([Shot(image, stamp_ns, frame_id, facts)], keep_saliency)
        return scene

    def assess_together(self, shots: Sequence[Shot], keep_saliency: bool = False) -> list[SceneAssessment]:
        """Perception's assessment of each of ``shots``, images of one size, computed ``images_at_once`` at a time.

        Each is what :meth:`assess` says of it alone, but for the timings, which are its share of a group's. What is not finite
        fails only the image that it comes from. Where memory does not suffice, ``images_at_once`` is halved for good. Raises
        as :meth:`assess`, and InvalidInput for images of different sizes.
        """
        for shot in shots:
            check_picture(shot.image)
        scenes: list[SceneAssessment] = []
        while len(scenes) < len(shots):
            group = shots[len(scenes) : len(scenes) + self.images_at_once]
            scenes += self._group(group, keep_saliency)
        return scenes

    def _group(self, shots: Sequence[Shot], keep_saliency: bool) -> list[SceneAssessment]:
        """The assessments of at most ``images_at_once`` images."""
        timings: dict[str, float] = {}
        with _timed(timings, "total"):
            measured = [self._measured(shot.image, shot.facts) for shot in shots]
            found = self._found(shots, measured, keep_saliency, timings)
            facts = [(one.digest(), one.exposure()) for one in measured]
        share = {stage: ms / len(shots) for stage, ms in timings.items()}
        return [
            self._assessment(
                shot.stamp_ns,
                shot.frame_id,
                (shot.image.shape[1], shot.image.shape[0]),
                digest,
                one,
                dict(share),
                exposure,
            )
            for shot, one, (digest, exposure) in zip(shots, found, facts, strict=True)
        ]

    def _found(
        self,
        shots: Sequence[Shot],
        measured: Sequence[_Measured],
        keep_saliency: bool,
        timings: dict[str, float],
    ) -> list[_Found]:
        """What the models find on each of ``shots``: on all together, else on fewer."""
        found = None
        try:
            with self._detector.on_device():
                found = self._processed(shots, measured, keep_saliency, timings)
        except (RuntimeError, MemoryError) as error:
            reason, short = self._reason(error), out_of_memory(error)
        if found is not None:
            return found
        # not in the except clause, whose traceback holds what was computed so far
        self._detector.free_memory()
        if short and self.images_at_once > 1:
            self._detector.images_at_once = at_once = self.images_at_once // 2
        elif len(shots) > 1:
            at_once = 1
        else:
            return [_failed(reason, self.settings.passes)]
        found = []
        while len(found) < len(shots):
            # a smaller group may have become short of memory too
            part = slice(len(found), len(found) + min(at_once, self.images_at_once))
            found += self._found(shots[part], measured[part], keep_saliency, timings)
        return found

    def examine(
        self, image: NDArray[np.uint8], members: Sequence[StochasticDetector] = ()
    ) -> tuple[SceneAssessment, Objects]:
        """What perception sees on ``image`` after all passes, without DiL, and what monitors may read of its clustered objects
        but logits.

        ``members``: the networks of an ensemble. What a panel is fitted on; raises as :meth:`assess` does, and NonFiniteOutput.
        """
        digest = image_digest(image)
        features = self._detector.encode(image)
        samples = self._detector.sample(
            features, self.settings.passes, image_seed(digest, self.settings.seed)
        )
        objects, unstable, uncertainty = observe(samples, self.settings.cluster)
        found = _Found(*_status(None, ""), objects, unstable, uncertainty, None, samples.passes)
        scene = self._assessment(0, "", (image.shape[1], image.shape[0]), digest, found, {})
        return scene, observe_objects(self._detector, image, features, samples, objects, members)

    def failed_assessment(self, stamp_ns: int, frame_id: str, reason: str) -> SceneAssessment:
        """Perception's SceneAssessment of an image that failed: status FAILED with ``reason``; it closes the gate."""
        return self._assessment(stamp_ns, frame_id, (0, 0), "", _failed(reason, self.settings.passes), {})

    def _reason(self, error: RuntimeError | MemoryError) -> str:
        """Why the assessment that ended with ``error`` failed. Raises DeviceFailed for a broken device, and ``error`` itself
        where neither the network's output nor memory is the reason.
        """
        if isinstance(error, NonFiniteOutput):
            return str(error)
        words = str(error).partition("\n")[0]
        stage = getattr(error, "__notes__", ["assess"])[0]
        if device_broken(error):
            raise DeviceFailed(f"{self.device} failed in stage {stage}: {words}") from error
        if not out_of_memory(error):
            raise error
        return (
            f"the memory of {self.device} does not suffice for stage {stage}: {words}; free memory there, or set a smaller "
            "images_at_once, passes_at_once or min_size, or another model"
        )

    def _measured(self, image: NDArray[np.uint8], facts: ImageFacts | None) -> _Measured:
        """What waits for the facts of ``image``; those that are missing are measured meanwhile, the digest first: masks follow
        from it.
        """
        if facts is not None and facts.digest:
            return _Measured(lambda: facts.digest, lambda: facts.exposure)
        digest = self._beside.submit(image_digest, image)
        if facts is not None:
            return _Measured(digest.result, lambda: facts.exposure)
        if not image.size:
            return _Measured(digest.result, lambda: None)
        return _Measured(digest.result, self._beside.submit(measure_exposure, image).result)

    def _processed(
        self,
        shots: Sequence[Shot],
        measured: Sequence[_Measured],
        keep_saliency: bool,
        timings: dict[str, float],
    ) -> list[_Found]:
        settings, detector = self.settings, self._detector
        images = [shot.image for shot in shots]
        begun = [self._novelty.begin(image) for image in images]
        with _timed(timings, "encode"):
            features = detector.encode_together(detector.filled(images))
        passes = self._deterministic(features, self._turns(shots, measured), timings)
        with _timed(timings, "novelty"):
            novel = [of_image(own) for of_image, own in zip(begun, features, strict=False)]
        localizations = self._localized(passes, novel, keep_saliency, timings)
        # waited for as late as possible: the network computes while it is measured
        seeds = [image_seed(one.digest(), settings.seed) for one in measured]

        with _timed(timings, "sample"):
            samples = detector.sample_together(features, settings.passes, detector.filled(seeds))
        return [
            self._clustered(shot.image, features[n], samples[n], novel[n], localizations.get(n), timings)
            for n, shot in enumerate(shots)
        ]

    def _turns(self, shots: Sequence[Shot], measured: Sequence[_Measured]) -> list[int]:
        """The numbers of those of ``shots`` that get distinctive localization."""
        every = self.settings.dil_every
        return [
            n
            for n, (shot, one) in enumerate(zip(shots, measured, strict=True))
            if self.settings.dil and (every == 1 or _has_turn(one.digest(), shot.stamp_ns, every))
        ]

    def _deterministic(
        self, features: Sequence[Features], turns: list[int], timings: dict[str, float]
    ) -> list[tuple[list[int], DeterministicPass]]:
        """The passes without dropout over the images whose numbers are ``turns``, each with the numbers of its images."""
        if not turns:
            return []
        # as many as are always computed together: all, or one
        groups = [self._detector.filled(turns)] if self.settings.dil_every == 1 else [[one] for one in turns]
        least = self.settings.localization.decision_threshold
        with _timed(timings, "detect"):
            return [
                (group, self._detector.deterministic_pass(*(features[n] for n in group), least_score=least))
                for group in groups
            ]

    def _localized(
        self,
        passes: Sequence[tuple[list[int], DeterministicPass]],
        novel: Sequence[ImageNovelty],
        keep_saliency: bool,
        timings: dict[str, float],
    ) -> dict[int, Localization]:
        """The distinctive localization of those images that have one, by their numbers."""
        found: dict[int, Localization] = {}
        for group, deterministic in passes:
            maps = tuple(own for n in group if (own := novel[n].maps) is not None)
            with _timed(timings, "dil"):
                made = localize(deterministic, self.settings.localization, keep_saliency, maps)
                for n, one in zip(group, made, strict=True):
                    found[n] = replace(one, novelty=novel[n].scene, scene_distance=novel[n].distance)
        return found

    def _clustered(
        self,
        image: NDArray[np.uint8],
        features: Features,
        samples: StochasticSamples,
        novel: ImageNovelty,
        localization: Localization | None,
        timings: dict[str, float],
    ) -> _Found:
        left_out = self.settings.dil and localization is None
        status = (Status.OK, LEFT_OUT) if left_out else _status(localization, self._novelty.problem)
        with _timed(timings, "cluster"):
            objects, unstable, uncertainty = observe(samples, self.settings.cluster)
        objects, unstable = novel.on(objects), novel.on(unstable)
        if self._panel is not None:
            with _timed(timings, "panel"):
                objects = self._panel.scored(self._detector, image, features, samples, objects)
        return _Found(*status, objects, unstable, uncertainty, localization, samples.passes)

    def _assessment(
        self,
        stamp_ns: int,
        frame_id: str,
        image_size: tuple[int, int],
        digest: str,
        found: _Found,
        timings: dict[str, float],
        exposure: Exposure | None = None,
    ) -> SceneAssessment:
        return SceneAssessment(
            stamp_ns=stamp_ns,
            frame_id=frame_id,
            image_size=image_size,
            image_digest=digest,
            model=self._detector.name,
            model_hash=self.model_hash,
            settings_hash=self.settings_hash,
            dropout_rate=self.settings.dropout_rate,
            timings=timings,
            exposure=exposure,
            panel_hash=self.panel_hash,
            device=self.device,
            precision=self.settings.precision,
            **found._asdict(),
        )


class _Measured(NamedTuple):
    """What waits for each of the facts of an image."""

    digest: Callable[[], str]
    exposure: Callable[[], Exposure | None]


class _Found(NamedTuple):
    """The part of an assessment that the models produce, by its field names."""

    status: Status
    status_text: str
    objects: tuple[ObservedObject, ...]
    unstable: tuple[ObservedObject, ...]
    uncertainty: ImageUncertainty
    localization: Localization | None
    passes: int


def _failed(reason: str, passes: int) -> _Found:
    return _Found(Status.FAILED, reason, (), (), image_uncertainty((), 0), None, passes)


def _status(localization: Localization | None, problem: str) -> tuple[Status, str]:
    """OK, or DEGRADED and what is missing: without DiL an object that no pass detected goes unnoticed, without novelty a scene
    that the detector was not made for. ``problem``: why novelty is not measured.
    """
    missing = [problem] if problem else []
    if localization is None:
        missing.insert(0, "distinctive localization is switched off")
    elif math.isnan(localization.dil):
        missing.insert(0, "distinctive localization is undefined: there is no objectness saliency")
    return (Status.DEGRADED, "; ".join(missing)) if missing else (Status.OK, "")


def _has_turn(digest: str, stamp_ns: int, every: int) -> bool:
    """Whether the image is one of those, one in ``every`` on average, that get distinctive localization.

    The image and its stamp decide, not a counter: a replay in any order and on any number of processes decides the same.
    """
    drawn = hashlib.blake2b(f"{digest}:{stamp_ns}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "little") % every == 0


def image_seed(digest: str, seed: int) -> int:
    """Perception's seed for the dropout masks of the image with ``digest`` under the user's ``seed``, below 2**63."""
    mixed = hashlib.blake2b(f"{digest}:{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") >> 1


@contextmanager
def _timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        error.add_note(stage)  # the innermost comes first
        raise
    timings[stage] = timings.get(stage, 0.0) + (time.perf_counter() - started) * 1e3
