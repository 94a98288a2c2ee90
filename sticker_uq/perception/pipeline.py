# SPDX-License-Identifier: Apache-2.0
"""The image pipeline of perception: from pixels to an assessment."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import scipy.optimize  # what the first image needs is there before it comes
import scipy.sparse.csgraph
import scipy.special  # noqa: F401
from numpy.typing import NDArray

from sticker_uq.detection import NonFiniteOutput, StochasticDetector, load_detector
from sticker_uq.detection.detector import ENGINE
from sticker_uq.detection.deterministic_pass import DeterministicPass
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.devices import device_broken, out_of_memory
from sticker_uq.detection.weights import close_up_weights
from sticker_uq.perception.close_ups import LEARNED_ZOOM, ZOOM, look_closely
from sticker_uq.perception.dil import localize
from sticker_uq.perception.front import FrontLook
from sticker_uq.perception.image_facts import ImageFacts, check_picture, image_digest, measure_exposure
from sticker_uq.perception.image_novelty import NoveltyEstimator
from sticker_uq.perception.monitors.folder import load_panel
from sticker_uq.perception.monitors.interface import Objects
from sticker_uq.perception.monitors.panel import observe_objects
from sticker_uq.perception.patches import PatchLook
from sticker_uq.perception.photo import PhotoLook
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import DeviceFailed, Exposure, InvalidInput, Localization, SceneAssessment, Status
from sticker_uq.uncertainty import TooManyBoxes, image_uncertainty, observe
from sticker_uq.uncertainty.observe import single_pass_on

WARM_UP_SIZE = (480, 640)
"""Height and width of the picture of :meth:`Perception.warm_up`, px."""


class Perception:
    """Assesses images with one detector. Not thread-safe; ``settings`` are those it was made from.

    The same pixels, settings, weights and machine give the same assessment, byte for byte but for the timings: the dropout
    masks of pass t follow from the pixels, ``settings.seed`` and t alone. Another number of torch threads or another processor
    may round differently, and so does a GPU on which memory became short (:attr:`shortage`).

    ``settings_hash``: SHA-256 of all else than the weights that changes the result, hex: the settings and the other networks;
    ``novelty_problem``: why no novelty is measured, although it should be, empty when it is, or when that is switched off;
    ``votes``, ``panel_hash``: who of the panel votes, and the digest of both, SHA-256, hex; empty without a panel.
    """

    def __init__(self, settings: PerceptionSettings, detector: StochasticDetector | None = None) -> None:
        """Load the detector that ``settings`` describe, or take ``detector``, which was made from the same settings.

        Raises :class:`InvalidInput` when weights or device cannot be used, or when the panel was fitted for another detector.
        """
        self.settings = settings
        self.detector = load_detector(settings) if detector is None else detector
        self._novelty = NoveltyEstimator(settings, self.detector)
        if settings.monitors and not settings.panel:
            raise InvalidInput(
                f"monitors is {settings.monitors!r}, expected the folder that they are in as panel"
            )
        self._panel = load_panel(settings.panel, settings.votes, self.detector) if settings.panel else None
        self.votes = () if self._panel is None else tuple(voter.name for voter in self._panel.voters)
        self.panel_hash = "" if self._panel is None else self._panel.hash
        self.model_hash, self.settings_hash = self.detector.weights_hash, self._novelty.settings_hash
        self._closely, self._zoom = self.detector, ZOOM
        learned = close_up_weights(settings.model, settings.weights, self.model_hash)
        if settings.close_ups and learned:
            self._closely = load_detector(settings.model_copy(update={"weights": str(learned)}))
            self._zoom = LEARNED_ZOOM
            self._add_to_hash(hashlib.sha256(learned.read_bytes()).hexdigest())
        self._photo = PhotoLook.of(settings, self.detector) if settings.photo else None
        if self._photo is not None:
            self._add_to_hash(self._photo.hash)
        self._front = FrontLook.of(settings, self.detector) if settings.last_look else None
        self._patches = PatchLook.of(settings, self.detector) if settings.last_look else None
        for look in (self._front, self._patches):
            if look is not None:
                self._add_to_hash(look.hash)
        self.novelty_problem, self.device = self._novelty.problem, self.detector.device_name
        self._chunk = self.detector.chunk
        self._beside = ThreadPoolExecutor(1, "measuring")

    def _add_to_hash(self, part: str) -> None:
        self.settings_hash = hashlib.sha256(f"{self.settings_hash}:{part}".encode()).hexdigest()

    @property
    def shortage(self) -> str:
        """What the device's memory did not suffice for, in words; "" where it did."""
        now = self.detector.chunk
        if now >= self._chunk:
            return ""
        passes = "pass" if now == 1 else "passes"
        return (
            f"the memory of {self.detector.device} suffices for {now} {passes} at once, not for {self._chunk}"
        )

    @property
    def graph_problems(self) -> str:
        """Stages that are computed without CUDA graphs, which the settings ask for, and why; "" where there are none."""
        problems = self._closely.graph_problems | self.detector.graph_problems
        return "; ".join(f"{stage}: {why}" for stage, why in problems.items())

    def warm_up(self) -> SceneAssessment:
        """Assess an empty image, so that the first real one is not slower than the others."""
        empty = np.zeros((*WARM_UP_SIZE, 3), np.uint8)
        reason = ""
        if self._closely is not self.detector or (self.settings.graphs and self.settings.close_ups):
            try:
                with self._closely.on_device():
                    self._closely.detect_in(empty)
            except (RuntimeError, MemoryError) as error:
                reason = self._reason(error)
        if reason:
            self.detector.free_memory()
            return self.failed_assessment(0, "", reason)
        if self.settings.graphs:  # the first image shows how often masks are drawn, the second is captured
            self.assess(empty)
        return self.assess(empty)

    def assess(
        self,
        image: NDArray[np.uint8],
        stamp_ns: int = 0,
        frame_id: str = "",
        keep_saliency: bool = False,
        facts: ImageFacts | None = None,
    ) -> SceneAssessment:
        """The assessment of ``image`` (H, W, 3) uint8 BGR.

        ``facts``: those of ``image`` that were measured beforehand; the others are measured while the network encodes. Stamp
        and frame are copied. The saliency map stays in the result if ``keep_saliency``. The status is DEGRADED when the
        distinctive localization is switched off or undefined or novelty cannot be measured, and FAILED when the network's output
        is NaN or infinite, there are more boxes than can be clustered, or the device's memory does not suffice, not even for a
        single pass. Raises :class:`InvalidInput` for anything that is no such image, and :class:`DeviceFailed` when the device
        cannot be used any more by this process.
        """
        check_picture(image)
        settings, detector, localization = self.settings, self.detector, None
        features: Features | None = None
        plain: DeterministicPass | None = None
        scene = self.failed_assessment(stamp_ns, frame_id, "")
        timings: dict[str, float] = {}
        with _time_stage(timings, "total"):
            digest, exposure = self._begin_measurement(image, facts)
            try:
                with detector.on_device():
                    novelty_of = self._novelty.begin(image)
                    with _time_stage(timings, "encode"):
                        features = detector.encode(image)
                    if settings.dil:
                        with _time_stage(timings, "detect"):
                            plain = detector.deterministic_pass(features, settings.decision_threshold)
                    with _time_stage(timings, "novelty"):
                        novel = novelty_of()
                    if plain is not None:
                        with _time_stage(timings, "dil"):
                            found = localize(plain, settings.localization, keep_saliency, novel.maps)
                            localization = replace(found, novelty=novel.scene)
                    # waited for as late as possible: the network computes while it is measured
                    seed = image_seed(digest(), settings.seed)
                    with _time_stage(timings, "sample"):
                        samples = detector.sample(features, settings.passes, seed)
                    with _time_stage(timings, "cluster"):
                        objects, unstable, uncertainty = observe(samples, settings.cluster)
                    objects, unstable = novel.on(objects), novel.on(unstable)
                    if plain is not None:
                        objects = single_pass_on(objects, plain.detections)
                    if settings.close_ups and objects:
                        with _time_stage(timings, "close_ups"), self._closely.on_device():
                            objects = look_closely(self._closely, image, objects, self._zoom)
                    if localization is not None and (self._front or self._patches):
                        with _time_stage(timings, "last_look"):
                            if self._front is not None:
                                in_front = self._front.obstruction(image)
                                localization = replace(localization, obstruction=in_front)
                            if self._patches is not None:
                                localization = self._patches.on(localization, features, objects)
                    if self._photo is not None:
                        with _time_stage(timings, "photo"):
                            objects = self._photo.on(objects, image)
                    if self._panel is not None:
                        with _time_stage(timings, "panel"):
                            objects = self._panel.score_objects(detector, image, features, samples, objects)
                status, text = _status(localization, self.novelty_problem)
                scene = replace(
                    scene,
                    status=status,
                    status_text=text,
                    objects=objects,
                    unstable=unstable,
                    uncertainty=uncertainty,
                    localization=localization,
                    scene_distance=novel.distance,
                )
            except (RuntimeError, MemoryError, TooManyBoxes) as error:
                scene = replace(scene, status_text=self._reason(error))
            if scene.status is Status.FAILED:
                features = plain = None  # neither a name nor a traceback holds what was computed so far
                detector.free_memory()
            height, width = image.shape[:2]
            scene = replace(scene, image_size=(width, height), image_digest=digest(), exposure=exposure())
        return replace(scene, timings=timings)

    def examine(self, image: NDArray[np.uint8]) -> tuple[SceneAssessment, Objects]:
        """What all passes see in ``image``, without DiL, and what monitors may read of its clustered objects but logits.

        What a panel is fitted on; raises as :meth:`assess` does, and NonFiniteOutput.
        """
        digest = image_digest(image)
        features = self.detector.encode(image)
        samples = self.detector.sample(features, self.settings.passes, image_seed(digest, self.settings.seed))
        objects, unstable, uncertainty = observe(samples, self.settings.cluster)
        status, text = _status(None, "")
        scene = replace(
            self.failed_assessment(0, "", text),
            status=status,
            image_size=(image.shape[1], image.shape[0]),
            image_digest=digest,
            objects=objects,
            unstable=unstable,
            uncertainty=uncertainty,
        )
        return scene, observe_objects(self.detector, image, features, samples, objects)

    def failed_assessment(self, stamp_ns: int, frame_id: str, reason: str) -> SceneAssessment:
        """Status FAILED with ``reason``, which closes the gate."""
        return SceneAssessment(
            stamp_ns=stamp_ns,
            frame_id=frame_id,
            status=Status.FAILED,
            status_text=reason,
            image_size=(0, 0),
            image_digest="",
            model=self.detector.name,
            model_hash=self.model_hash,
            settings_hash=self.settings_hash,
            passes=self.settings.passes,
            dropout_rate=self.settings.dropout_rate,
            objects=(),
            unstable=(),
            uncertainty=image_uncertainty((), 0),
            localization=None,
            timings={},
            panel_hash=self.panel_hash,
            device=f"{self.device}, engine {ENGINE}",
            precision=self.settings.precision,
        )

    def _reason(self, error: RuntimeError | MemoryError | TooManyBoxes) -> str:
        """Why the assessment that ended with ``error`` failed. Raises DeviceFailed for a broken device, and ``error`` itself
        where neither the network's output nor memory is the reason.
        """
        if isinstance(error, NonFiniteOutput | TooManyBoxes):
            return str(error)
        words = str(error).partition("\n")[0]
        stage = getattr(error, "__notes__", ["assess"])[0]
        if device_broken(error):
            raise DeviceFailed(f"{self.device} failed in stage {stage}: {words}") from error
        if not out_of_memory(error):
            raise error
        return (
            f"the memory of {self.device} does not suffice for stage {stage}: {words}; free memory there, or set a smaller "
            "passes_at_once or min_size, or another model"
        )

    def _begin_measurement(
        self, image: NDArray[np.uint8], facts: ImageFacts | None
    ) -> tuple[Callable[[], str], Callable[[], Exposure | None]]:
        """Functions that wait for the digest of ``image`` and its exposure; what is missing in ``facts`` is measured
        meanwhile, the digest first: masks follow from it.
        """
        if facts is not None and facts.digest:
            return lambda: facts.digest, lambda: facts.exposure
        digest = self._beside.submit(image_digest, image)
        if facts is not None:
            return digest.result, lambda: facts.exposure
        if not image.size:
            return digest.result, lambda: None
        return digest.result, self._beside.submit(measure_exposure, image).result


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


def image_seed(digest: str, seed: int) -> int:
    """Seed for the dropout masks of the image with ``digest`` under the user's ``seed``, below 2**63."""
    mixed = hashlib.blake2b(f"{digest}:{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") >> 1


@contextmanager
def _time_stage(timings: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        error.add_note(stage)  # the innermost comes first
        raise
    timings[stage] = timings.get(stage, 0.0) + (time.perf_counter() - started) * 1e3
