# SPDX-License-Identifier: Apache-2.0
"""What a qualification and an improvement do alike, in kept steps: weights, novelty network, assessed pictures, limits."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from sticker_uq.calibration.fitting import Levels
from sticker_uq.calibration.making import assess_sources, write_policy
from sticker_uq.calibration.records import Assessed
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.weights import load_weights
from sticker_uq.gate import Policy
from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.io.setting_fields import Frozen
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.novelty.network import packaged_file, read_network, save_network
from sticker_uq.perception.novelty.photo_network import PACKAGED
from sticker_uq.perception.novelty.quality import Auroc
from sticker_uq_lab import Progress
from sticker_uq_lab.kept_pieces import Steps, file_digest
from sticker_uq_lab.qualifying.results import NoveltyResult
from sticker_uq_lab.training.checkpoint import STATE
from sticker_uq_lab.training.novelty_training import FEWEST, epochs_for, learn_novelty_network
from sticker_uq_lab.training.photo_head import CALLED_FROM, learn_photo_head
from sticker_uq_lab.training.settings import TrainSettings
from sticker_uq_lab.training.training import BEST, train

WEIGHTS, NOVELTY, POLICY = "weights.safetensors", "weights_novelty.safetensors", "policy.yaml"
PHOTO = "weights_photo.safetensors"
_BASE_MODEL = "ssdlite320_mobilenet_v3_large"


class CandidateSettings(Frozen):
    """``perception``: settings as the cell has them; ``training``: fields of :class:`TrainSettings`."""

    perception: PerceptionSettings = PerceptionSettings()
    levels: Levels = Levels()
    training: dict[str, Any] = Field({})
    novelty_epochs: int | None = None
    seed: int = 0
    command: str = ""


Settings = TypeVar("Settings", bound=CandidateSettings)


class Candidate(Generic[Settings]):
    """Weights and limits in the making, in the folder of ``steps``; each step is done once for the same inputs.

    ``stop``: whether to end after the next step of the training, with ``KeyboardInterrupt``. ``jobs``, ``ray_address``: where
    images are assessed, see :func:`assess_sources`.
    """

    def __init__(
        self,
        settings: Settings,
        steps: Steps,
        progress: Progress = lambda stage, done, total: None,
        stop: Callable[[], bool] = lambda: False,
        jobs: int = 0,
        ray_address: str = "",
    ) -> None:
        self.settings, self._seen = settings, settings.perception
        self._steps, self._progress, self._stop = steps, progress, stop
        self._where = (jobs, ray_address)
        self._work = steps.work
        self._trained = steps.work / "train" / BEST

    @property
    def perception(self) -> PerceptionSettings:
        """Settings of perception with the weights that were trained."""
        return self._seen.model_copy(update={"weights": str(self._work / "novelty" / WEIGHTS)})

    @property
    def _policy_file(self) -> Path:
        return self._work / "calibrate" / POLICY

    def _make_counter(self, stage: str, total: int) -> Callable[[], None]:
        done = count(1)
        return lambda: self._progress(stage, next(done), total)

    def _identity(self) -> dict[str, Any]:
        files = [self._work / "novelty" / name for name in (WEIGHTS, NOVELTY, PHOTO)]
        return {
            "weights": [file_digest(path) for path in files if path.is_file()],
            "perception": self._seen.model_dump(mode="json", exclude={"threads", "weights"}),
        }

    def _assess(self, folder: Path, stage: str, perception: PerceptionSettings | None = None) -> Assessed:
        source = LabelledSource(folder)
        advance = self._make_counter(stage, len(source))
        cache = self._work / "assessments.sqlite"
        return assess_sources([source], perception or self.perception, cache, advance, *self._where)[0]

    def _train_on(self, settings: TrainSettings) -> dict[str, Any]:
        """Train as ``settings`` say, or go on with it; what the best weights say of themselves, ``map50`` NaN if not measured."""
        resume = (settings.out / STATE).exists()
        finished = train(
            settings,
            resume=resume,
            command=self.settings.command,
            say=lambda line: self._steps.tell("train", line) if resume else None,
            on_step=lambda step: self._progress("training", step.step, step.steps),
            stop=self._stop,
        )
        if not finished:
            raise KeyboardInterrupt
        best = load_weights(settings.out / BEST)[1]
        return best | {"map50": float("nan") if best.get("map50") is None else float(best["map50"])}

    def _learn_novelty(
        self,
        items: Callable[[], Sequence[LabelledImage]],
        start: Path | None,
        inputs: Mapping[str, Any],
        for_objects: bool = True,
    ) -> NoveltyResult:
        """Copy the trained weights and put the novelty network for them beside, if there are pictures enough, and the photo head
        where perception measures that.

        Without ``novelty_epochs`` the network ``start`` is trained only if it is too weak for scenes or, where ``for_objects``,
        for these.
        """
        epochs, photo = self.settings.novelty_epochs, self._seen.photo
        most = 2 * TrainSettings.model_construct(**self.settings.training).epochs  # a quarter of its time

        def make(folder: Path) -> NoveltyResult:
            shutil.copyfile(self._trained, folder / WEIGHTS)
            pictures = items()
            if photo:
                settings = {"weights": str(self._trained), "score_floor": CALLED_FROM, "photo": False}
                finder = load_detector(self._seen.model_copy(update=settings))
                learn_photo_head(finder, pictures, folder / PHOTO, self.settings.seed, self._progress)
            if len(pictures) < FEWEST:
                why = f"{len(pictures)} pictures to learn from, expected {FEWEST} or more"
                unknown = Auroc(0.5, 0.0, 1.0)
                return NoveltyResult(objects=unknown, scenes=unknown, pictures=0, weakness=why)
            own = self._seen.model == _BASE_MODEL
            detector = load_detector(
                self._seen.model_copy(update={"weights": str(self._trained)})
                if own
                else PerceptionSettings(device=self._seen.device)
            )
            begin = read_network(start) if start else None
            seed, progress = self.settings.seed, self._progress
            learned = partial(learn_novelty_network, detector, pictures, begin, seed=seed, progress=progress)
            network = learned(0 if begin is not None and epochs is None else epochs)
            quality = network.quality
            weak = quality and (quality.weakness or (for_objects and quality.objects_weakness))
            if epochs is None and begin is not None and weak:
                network = learned(min(most, epochs_for(len(pictures) * 4 // 5)))
                quality = network.quality
            assert quality is not None
            save_network(network, detector, folder / NOVELTY)
            names = ("objects", "scenes", "pictures", "weakness", "objects_weakness")
            return NoveltyResult(**{name: getattr(quality, name) for name in names})

        given = {"weights": file_digest(self._trained), "epochs": epochs, **inputs}
        if photo:
            given["photo"] = file_digest(PACKAGED)
        files = (WEIGHTS, PHOTO) if photo else (WEIGHTS,)
        return self._steps.run("novelty", given, NoveltyResult, make, files)


def packaged_novelty() -> Path | None:
    return packaged_file(_BASE_MODEL)


def base_without_novelty(base: Policy, novelty: NoveltyResult) -> Policy:
    """``base``, which releases where novelty is not measured if no network can be used, and does not limit that of objects if
    it tells scenes alone. The bundle and the gate warn of the first, and a real arm does not move on it by itself.
    """
    if novelty.weakness:
        return base.model_copy(update={"unmeasured_novelty": "release"})
    return base.model_copy(update={"max_object_novelty": 1.0}) if novelty.objects_weakness else base


def without_guarantee(base: Policy, file: Path, novelty: NoveltyResult) -> Path:
    """Write the limits of ``base``, which guarantee nothing, to ``file``; returns it."""
    nothing = dict.fromkeys(("guarantee", "validity", "provenance", "reference"))
    plain = base_without_novelty(base, novelty).model_copy(update=nothing)
    write_policy(plain, file, "# Limits without a guarantee for these weights.\n")
    return file
