# SPDX-License-Identifier: Apache-2.0
"""Training a detector: its data, epochs, validation and checkpoints."""

import copy
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.detector import StochasticDetector, load_detector, resolve_device
from sticker_uq.detection.dropout import PassDropout, no_dropout
from sticker_uq.detection.kernels.devices import return_freed_memory
from sticker_uq.detection.registry import detector_entry
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.detection.weights import save_weights
from sticker_uq.evaluation.metrics.accuracy import average_precisions
from sticker_uq.evaluation.metrics.decisions import wrongful_share
from sticker_uq.io.coco import LabelledImage, check_objects, dataset_digest, read_coco, read_picture
from sticker_uq.scene import Detections, InvalidInput, ObjectClass
from sticker_uq_lab.training import recipes
from sticker_uq_lab.training.augmentation import Sample, augment, split_items
from sticker_uq_lab.training.checkpoint import STATE, Position, load_state, save_state, saved_network
from sticker_uq_lab.training.loading import Arrays, ahead, pack, unpack
from sticker_uq_lab.training.photo_head import CALLED_FROM, learn_photo_head
from sticker_uq_lab.training.replicas import Replicas, keep_freed_memory
from sticker_uq_lab.training.settings import EpochResult, Progress, TrainSettings
from sticker_uq_lab.training.starts import Start, choose_network, fill, find_start

__all__ = ["BEST", "EpochResult", "Progress", "TrainSettings", "Training", "train"]

BEST = "best.safetensors"
_LARGEST_GRADIENT = 10.0
_NORM_MOMENTUM = 0.1  # torchvision's 0.03 for SSDLite needs more steps than a short training has
_VALIDATION_FLOOR = 0.01
_MIN_PER_REPLICA = 2
_SAVE_EVERY_S = 60.0
ENOUGH_TO_CHOOSE = 100
"""Validation pictures from which the epoch with the fewest wrongful removals is the best one; by chance one of fewer is."""


class Training:
    """Between the first and the last step: AdamW with a cosine rate and an average of the weights.

    Everything random in it depends on the seed and the number of the step, so it can be stopped and resumed
    between any two steps without a difference. Another number of threads divides the batch in another way. ``beside``: whether
    processes of their own prepare the pictures, as they do for a GPU.
    """

    def __init__(
        self,
        settings: TrainSettings,
        *,
        resume: bool = False,
        command: str = "",
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Read the data, build the model and fill it: from the state in ``settings.out`` if ``resume``."""
        self.settings, self.command = settings, command
        self.device = resolve_device(settings.device)
        self.beside = self.device.type != "cpu"
        self.items, self.val_items = split_items(settings.data, settings.val_data, settings.seed)
        labelled = self.items
        self._check_items(resume, say)
        self.items = labelled + [i for folder in settings.exposure for i in read_coco(folder, crowd=True)]
        if resume:
            start = None
            self._network = saved_network(settings.out, settings.input_size, settings.anchor_scales)
        else:
            start = find_start(settings.start, settings.model, say)
            self._network = choose_network(settings, labelled, start, say)
        self._plan_steps()
        self.position = Position()
        self._build_model(start, say)
        self._build_parts()
        if resume:
            self.position = load_state(settings.out, self._fingerprint(), self._parts, self.device)
            epochs, more = divmod(self.position.step, self.steps_per_epoch)
            steps = f" and {more} of {self.steps_per_epoch} steps of the next" if more else ""
            say(f"resumes after epoch {epochs} of {settings.epochs}{steps}")
        self._averaged = recipes.float_tensors(self.average, self.model)

    def _check_items(self, resume: bool, say: Callable[[str], None]) -> None:
        """Refuse what cannot be learned from, and say what validation cannot tell."""
        settings = self.settings
        check_objects(self.items, ", ".join(map(str, settings.data)))
        if settings.val_data is not None:
            check_objects(self.val_items, f"--val-data {settings.val_data}")
            trained = {os.path.realpath(item.path) for item in self.items}
            shared = sum(os.path.realpath(item.path) in trained for item in self.val_items)
            if shared and not resume:
                say(
                    f"{shared} of the {len(self.val_items)} pictures of --val-data are trained on: figures of them flatter"
                )
        elif not any(len(item.labels) for item in self.val_items):
            say("no validation picture has a logo or sticker: the last epoch is taken, not the best")
        if not resume and len(self.val_items) < ENOUGH_TO_CHOOSE:
            say(
                f"{len(self.val_items)} pictures to validate on are too few to choose an epoch by: the last one is taken, not "
                f"the best (from {ENOUGH_TO_CHOOSE} pictures on)"
            )
        fixed = detector_entry(settings.model).fixed_input_size
        if (settings.input_size or settings.anchor_scales) and not fixed:
            raise InvalidInput(
                f"--input-size and --anchor-scales are for an SSD, expected none for {settings.model}"
            )

    def _plan_steps(self) -> None:
        settings = self.settings
        self.batch_size = min(settings.batch_size, len(self.items))
        self._recipe = recipes.recipe_of(settings.model)
        if self.batch_size < self._recipe.min_batch:
            raise InvalidInput(
                f"batch of {self.batch_size} picture: expected {self._recipe.min_batch} or more for {settings.model}"
            )
        # pictures beyond the last full batch come in a later epoch
        self.steps_per_epoch = len(self.items) // self.batch_size
        self.steps = settings.epochs * self.steps_per_epoch
        self.rate = settings.learning_rate or self._recipe.learning_rate

    def _build_model(self, start: Start | None, say: Callable[[str], None]) -> None:
        """The model with the weights of ``start``; None: those of the state to resume come later."""
        settings = self.settings
        torch.manual_seed(settings.seed)
        self.model = build_model(settings.model, min_size=settings.min_size, **self._network)
        if start is None:
            return
        self.position.initial = fill(self.model, settings.model, start, say)
        if self.position.initial == "random":
            size = recipes.input_size(settings.model, self.model)
            order = np.random.default_rng(settings.seed).permutation(len(self.items))
            samples = [
                augment(self.items[i], size, np.random.default_rng((settings.seed, i)))
                for i in order[: self.batch_size].tolist()
            ]
            recipes.prepare_random(settings.model, self.model, samples, torch.device("cpu"))

    def _build_parts(self) -> None:
        """Average and optimizer beside the model, all on the device."""
        self.average: Any = copy.deepcopy(self.model)
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = _NORM_MOMENTUM
        self.model.to(self.device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
        recipes.freeze(self.model, self.settings.freeze)
        self.average.to(self.device).eval().requires_grad_(False)
        self.optimizer = recipes.build_optimizer(self.model, self.rate)
        self._parts = {"model": self.model, "average": self.average, "optimizer": self.optimizer}

    def run(
        self,
        on_step: Callable[[Progress], None],
        on_epoch: Callable[[EpochResult], None],
        stop: Callable[[], bool],
    ) -> bool:
        """Run to the end, or until ``stop()`` is true after a step; returns whether the end was reached.

        The state is saved after every epoch, when stopped, and after the first step and every minute, for what ends without
        being stopped.
        """
        position = self.position
        saved = -math.inf
        with self._replicas() as replicas:
            prepared = self._prepare_batches()
            while position.step < self.steps:
                started = time.monotonic()
                self._step(replicas, next(prepared, None))
                seconds = time.monotonic() - started
                position.seconds += seconds
                finished = position.step % self.steps_per_epoch == 0
                if finished:
                    on_epoch(self._finish_epoch())
                stopped = stop() and position.step < self.steps
                if not finished and (stopped or time.monotonic() - saved > _SAVE_EVERY_S):
                    self._save()
                    saved = time.monotonic()
                on_step(self._progress(seconds))
                if stopped:
                    return False
        return True

    @contextmanager
    def _replicas(self) -> Iterator[Replicas]:
        threads = self.settings.threads or torch.get_num_threads()
        most = self.batch_size // _MIN_PER_REPLICA
        divided = self.device.type == "cpu" and self._recipe.replicas
        count = max(1, min(threads, most)) if divided else 1
        before = torch.get_num_threads(), cv2.getNumThreads()
        torch.set_num_threads(max(1, threads // count) if self.device.type == "cpu" else 1)
        cv2.setNumThreads(1)
        keep_freed_memory()
        replicas = Replicas(self.model, count)
        try:
            yield replicas
        finally:
            replicas.close()
            for parameter in self.model.parameters():
                parameter.grad = None
            return_freed_memory()
            torch.set_num_threads(before[0])
            cv2.setNumThreads(before[1])

    def _prepare_batches(self) -> Iterator[list[Sample]]:
        """The pictures of the steps to come, where other processes prepare them; nothing on a processor."""
        if not self.beside:
            return
        done = self.position.step

        def prepare(number: int) -> Arrays:
            return pack(self._samples(done + number, self._choose(done + number)))

        workers = self.settings.threads or os.cpu_count() or 1
        yield from map(unpack, ahead(prepare, self.steps - done, workers, processes=True))

    def _choose(self, step: int) -> list[int]:
        epoch, number = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng((self.settings.seed, epoch)).permutation(len(self.items))
        chosen: list[int] = order[number * self.batch_size : (number + 1) * self.batch_size].tolist()
        return chosen

    def _samples(self, step: int, indices: Sequence[int]) -> list[Sample]:
        size, epoch = self._input_size(step), step // self.steps_per_epoch
        return [
            augment(self.items[i], size, np.random.default_rng((self.settings.seed, epoch, i)))
            for i in indices
        ]

    def _step(self, replicas: Replicas, prepared: list[Sample] | None) -> None:
        settings, step = self.settings, self.position.step
        torch.manual_seed(settings.seed * 1_000_003 + step)  # torchvision samples proposals
        chosen = self._choose(step)
        for group in self.optimizer.param_groups:
            group["lr"] = recipes.learning_rate(self.rate, step, self.steps)

        def loss(model: nn.Module, indices: Sequence[int]) -> Tensor:
            samples = prepared or self._samples(step, indices)
            numbers = [step * len(self.items) + index for index in indices]
            rate, seed = settings.dropout, settings.seed
            dropout = PassDropout(rate, seed, numbers, self.device) if rate else no_dropout
            # weights, gradients, losses, normalisation and sums stay float32
            with torch.autocast(self.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
                return recipes.batch_loss(settings.model, model, samples, self.device, dropout)

        count = len(replicas.models)
        value = replicas.gradients([chosen[i::count] for i in range(count)], loss)
        if not math.isfinite(value):
            raise InvalidInput(
                f"the loss of step {step + 1} is {value}: expected a finite one; try a learning rate below {self.rate:g}"
            )
        nn.utils.clip_grad_norm_(self.model.parameters(), _LARGEST_GRADIENT)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(*self._averaged, 1 - recipes.ema_decay(step))
        self.position.step += 1
        self.position.smooth(value)

    def _input_size(self, step: int) -> tuple[int, int] | None:
        # small pictures are for random weights; pretrained ones would get worse first
        progress = step / self.steps if self.position.initial == "random" else 1.0
        return recipes.input_size(self.settings.model, self.model, progress)

    def _finish_epoch(self) -> EpochResult:
        position, settings = self.position, self.settings
        rate = self.optimizer.param_groups[0]["lr"]
        size = self._input_size(position.step - 1)
        wrongful, precisions = self._validate(size)
        known = [p for p in precisions.values() if not math.isnan(p)]
        result = EpochResult(
            position.step // self.steps_per_epoch,
            position.epoch_loss / self.steps_per_epoch,
            wrongful,
            sum(known) / len(known) if known else math.nan,
            precisions[ObjectClass.LOGO],
            precisions[ObjectClass.STICKER],
            rate,
            size[0] if size else settings.min_size,
            position.seconds,
        )
        position.history.append(result)
        position.epoch_loss, position.seconds = 0.0, 0.0
        # Larger inputs are closer to those of the detector and come first. Without a measurement to rely on the latest are best.
        enough = known and len(self.val_items) >= ENOUGH_TO_CHOOSE
        rank = (result.input_size, -wrongful if enough else math.inf)
        if rank >= position.best:
            position.best = rank
            save_weights(self.average, settings.out / BEST, self._metadata(result), half=True)
        self._save()
        return result

    def _validate(self, size: tuple[int, int] | None) -> tuple[float, dict[ObjectClass, float]]:
        """Wrongful removals at equal questions, and AP at IoU 0.5 by class, of the averaged weights at ``size``."""
        own = self.settings.model_dump(include={"model", "min_size", "device"})
        settings = DetectorSettings(score_floor=_VALIDATION_FLOOR, **own)
        detector = StochasticDetector(self.average, settings, "")

        def detect(item: LabelledImage) -> Detections:
            return detector.detect(detector.encode(read_picture(item)))

        # small networks are faster on several pictures at once, as in training
        alone = self.device.type != "cpu" or torch.get_num_threads() > 1
        workers = 1 if alone else self.settings.threads or os.cpu_count() or 1
        own_size = self.average.transform.fixed_size
        self.average.transform.fixed_size = size
        try:
            with ThreadPoolExecutor(workers) as pool:
                found = list(pool.map(detect, self.val_items))
        finally:
            self.average.transform.fixed_size = own_size
        return wrongful_share(found, self.val_items), average_precisions(found, self.val_items)

    def _progress(self, seconds: float) -> Progress:
        position = self.position
        return Progress(
            (position.step - 1) // self.steps_per_epoch + 1,
            position.step,
            self.steps,
            position.step * self.batch_size,
            position.loss,
            position.history[-1].map50 if position.history else math.nan,
            seconds,
        )

    def _save(self) -> None:
        save_state(self.settings.out, self._fingerprint(), self.position, self._parts)

    def _fingerprint(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "model": settings.model,
            "data": dataset_digest(self.items),
            "epochs": settings.epochs,
            "batch_size": settings.batch_size,
            "learning_rate": self.rate,
            "min_size": settings.min_size,
            **{name: value for name, value in self._network.items() if value},
            **({"dropout": settings.dropout} if settings.dropout else {}),
            "precision": settings.precision,
            "freeze": settings.freeze,
            "seed": settings.seed,
        }

    def _metadata(self, result: EpochResult) -> dict[str, Any]:
        return {
            "model": self.settings.model,
            "data": {
                "name": ", ".join(folder.name for folder in self.settings.data),
                "images": len(self.items),
                "digest": dataset_digest(self.items),
            },
            "validation": {"images": len(self.val_items), "digest": dataset_digest(self.val_items)},
            **({"network": self._network} if self._network else {}),
            **({"dropout": {"rate": rate, "site": "in"}} if (rate := self.settings.dropout) else {}),
            "freeze": self.settings.freeze,
            "seed": self.settings.seed,
            "epoch": result.epoch,
            "input_size": result.input_size,
            "wrongful": result.wrongful,
            "map50": _finite(result.map50),
            "ap50": {"logo": _finite(result.ap_logo), "sticker": _finite(result.ap_sticker)},
            "initial": self.position.initial,
            "command": self.command,
            "torch": torch.__version__,
        }


def train(
    settings: TrainSettings,
    *,
    resume: bool = False,
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
    on_step: Callable[[Progress], None] = lambda progress: None,
    on_epoch: Callable[[EpochResult], None] = lambda result: None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train as ``settings`` say and leave best.safetensors, metrics.csv and the state in ``settings.out``.

    With ``photo_head`` best_photo.safetensors too. Returns whether the end was reached; False when ``stop()`` was true after a
    step. ``resume`` continues from the state, bit for bit as if there had been no pause. ``say`` is called with the source of the
    initial weights, or with where the training resumes; ``command`` is stored as the origin in the metadata of the weights.
    Raises InvalidInput for unusable data, weights or state, a folder that already holds a training, and a loss that is not
    finite; OSError when the disk fails.
    """
    if not resume and (settings.out / STATE).exists():
        raise InvalidInput(f"{settings.out / STATE}: exists already; expected another folder, or --resume")
    training = Training(settings, resume=resume, command=command, say=say)
    settings.out.mkdir(parents=True, exist_ok=True)  # after everything was read: a refusal leaves nothing
    finished = training.run(on_step, on_epoch, stop)
    if finished and settings.photo_head:
        best = settings.out / BEST
        own = settings.model_dump(include={"model", "min_size", "device"})
        detector = load_detector(DetectorSettings(weights=str(best), score_floor=CALLED_FROM, **own))
        file = best.with_name(f"{best.stem}_photo.safetensors")
        learn_photo_head(detector, training.items, file, settings.seed)
        say(f"head for the second opinion in {file}")
    return finished


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
