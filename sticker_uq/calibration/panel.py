# SPDX-License-Identifier: Apache-2.0
"""A panel of monitors from labelled images: fitted on some, the limits of its objections set on the others."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.outcomes import MATCH_IOU
from sticker_uq.evaluation.metrics.matching import best_overlap
from sticker_uq.gate import OperatorAnswers, Policy, judge
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.io.crops import cut_crops, empty_boxes
from sticker_uq.perception import Perception
from sticker_uq.perception.monitors import Monitor, Objects, concatenate, measure_cost, monitor_named
from sticker_uq.perception.monitors.detections import CROP_SIZE, Probe
from sticker_uq.perception.monitors.folder import MonitorCalibration, PanelFile, save_panel
from sticker_uq.perception.monitors.panel import PanelMember
from sticker_uq.perception.monitors.task_network import TaskNetwork
from sticker_uq.scene import FloatArray, InvalidInput, ObjectClass

DEFAULT = ("pcs", "mc_mutual_information", "energy", "knn", "dissector")
"""The monitors that are fitted by default: one per kind of data on an object that needs no further pass over the picture."""
LEAST = 20
"""Rightly removed stickers that limits need at least."""
_LIDS = 2  # crops of bare lid per picture, for a task network
LOOKED_OVER = OperatorAnswers().with_scene_checked()
"""Doubts about a scene as a whole are not what a panel is for."""
Tell = Callable[[str], None]
Labelled = tuple[LabelledImage, FloatArray]
"""A picture of a COCO folder with the share (N,) of annotators who call each of its objects a sticker."""


@dataclass(frozen=True)
class Evidence:
    """The clustered objects of some pictures as the monitors to be fitted see them.

    ``objects``: with the classes that the labels give them and their fractions; ``crops`` (M, C, h, w) and ``fractions`` (M,) of
    everything labelled and of bare lid; ``removable`` (N,): which of the objects the policy would remove by itself; ``images``:
    how many pictures.
    """

    objects: Objects
    crops: FloatArray
    fractions: FloatArray
    removable: NDArray[np.bool_]
    images: int

    @property
    def right(self) -> NDArray[np.bool_]:
        assert self.objects.labels is not None
        return np.asarray(self.objects.predicted == self.objects.labels)


def examine(perception: Perception, pictures: Iterable[Labelled], policy: Policy, seed: int) -> Evidence:
    """What ``perception`` sees on ``pictures``, and what ``policy`` would remove, to fit a panel of monitors.

    An object has the class of the labelled box that it overlaps most, from IoU 0.3 on. Raises InvalidInput for a picture that
    cannot be read and when nothing at all is detected.
    """
    parts, crops, fractions, removable = [], [], [], []
    for number, (item, shares) in enumerate(pictures):
        image = read_picture(item)
        scene, objects = perception.examine(image)
        found = scene.objects
        chosen = {v.object.id for v in judge(scene, policy, LOOKED_OVER).removable()}
        removable += [one.id in chosen for one in found]
        boxes = np.array([one.box for one in found], np.float32).reshape(-1, 4)
        place, _ = best_overlap(boxes, item.boxes, MATCH_IOU)
        # -1, nothing there, picks the background at the end
        labels = np.append(item.labels, int(ObjectClass.BACKGROUND))[place]
        parts.append(replace(objects, labels=labels, fractions=np.append(shares, 0.0)[place]))
        lids = empty_boxes(
            (item.width, item.height), item.boxes, _LIDS, np.random.default_rng([seed, number])
        )
        crops.append(cut_crops(image, np.concatenate([lids, item.boxes]), CROP_SIZE))
        fractions.append(np.concatenate([np.zeros(len(lids)), shares]))
    everything = concatenate([part for part in parts if len(part)] or parts)
    if not len(everything):
        raise InvalidInput(
            f"nothing is detected on {len(parts)} pictures, expected objects to fit monitors on"
        )
    return Evidence(
        everything, np.concatenate(crops), np.concatenate(fractions), np.array(removable, bool), len(parts)
    )


def fit_panel(
    perception: Perception,
    fitting: Sequence[Labelled],
    calibrating: Sequence[Labelled],
    names: Sequence[str],
    out: Path,
    policy: Policy,
    alarms: float = 0.05,
    task: float | None = None,
    about: dict[str, Any] | None = None,
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> PanelFile:
    """Fit the panel ``names`` on labelled images and write it to the folder ``out``; returns what panel.json says.

    ``alarms``: share of the stickers of ``calibrating`` that ``policy`` would rightly remove, that the panel as a whole may
    refuse; what the policy asks about anyway needs no panel, and would only loosen its limits. ``task``: threshold of a task
    network, which joins the panel. InvalidInput when names or pictures do not suffice.
    """
    if not 0 < alarms < 1:
        raise InvalidInput(f"--alarms {alarms:g}: expected more than 0 and less than 1")
    # without a novelty network the policy would ask about everything, and there were nothing to set limits on
    policy = policy.model_copy(update={"unmeasured_novelty": "release"})
    wanted = [monitor_named(name) for name in names]
    for one in wanted:
        if "members" in one.needs:
            raise InvalidInput(
                f"monitor {one.name} needs an ensemble of networks, which a panel has not: choose another"
            )
    tell(f"{len(fitting)} pictures to fit on")
    fitted = examine(perception, fitting, policy, seed)
    assert fitted.objects.features is not None
    assert fitted.objects.labels is not None
    probe = Probe.fit(fitted.objects.features, fitted.objects.labels)
    tell(f"{len(calibrating)} pictures to set limits on")
    seen = examine(perception, calibrating, policy, seed)
    own, others = (
        replace(one.objects, logits=probe.logits(np.asarray(one.objects.features))) for one in (fitted, seen)
    )
    usable = seen.removable & seen.right
    if usable.sum() < LEAST:
        raise InvalidInput(
            f"{int(usable.sum())} stickers on {seen.images} pictures would rightly be removed, expected {LEAST} or more to set "
            "limits on"
        )
    tell("monitors")
    panel: list[Monitor] = [one.fit(own) for one in wanted]
    if task is not None:
        panel.append(task_network(fitted, task, seed))
    scores = {one.name: one.score(others) for one in panel}
    for one in panel:
        measure_cost(one, others)
    limits = joint_limits({name: values[usable] for name, values in scores.items()}, alarms)
    refused = {name: ~(values <= limits[name]) for name, values in scores.items()}
    together = np.any(list(refused.values()), axis=0)
    wrong = seen.removable & ~seen.right
    return save_panel(
        out,
        perception.detector,
        [PanelMember(one, limits[one.name]) for one in panel],
        {name: int(rows[usable].sum()) for name, rows in refused.items()},
        probe,
        MonitorCalibration(
            images=seen.images,
            stickers=int(usable.sum()),
            refused=int(together[usable].sum()),
            wrong=int(wrong.sum()),
            caught=int(together[wrong].sum()),
            alarms=alarms,
            policy_hash=policy.hash,
        ),
        about or {},
    )


def joint_limits(scores: dict[str, FloatArray], alarms: float) -> dict[str, float]:
    """The limit of each monitor, so that all together object to at most a share ``alarms`` of the objects scored (N,).

    Each refuses equally many of them by itself, as many as that allows; those that are the same for all monitors cost nothing
    extra. NaN and infinite scores are objections whatever the limit.
    """
    known = {name: np.where(np.isnan(values), np.inf, values) for name, values in scores.items()}
    ordered = {name: np.sort(values) for name, values in known.items()}
    count = len(next(iter(known.values())))
    for each in range(int(alarms * count), 0, -1):
        limits = {name: _finite(values, count - 1 - each) for name, values in ordered.items()}
        if np.any([values > limits[name] for name, values in known.items()], axis=0).mean() <= alarms:
            return limits
    return {name: _finite(values, count - 1) for name, values in ordered.items()}


def _finite(ordered: FloatArray, place: int) -> float:
    below = ordered[: place + 1]
    finite = below[np.isfinite(below)]
    return float(finite[-1]) if len(finite) else float("-inf")


def task_network(fitted: Evidence, threshold: float, seed: int) -> TaskNetwork:
    """A network for the decision at ``threshold``; InvalidInput when all fractions lie on one side of it."""
    assert fitted.objects.crops is not None
    assert fitted.objects.fractions is not None
    crops = np.concatenate([fitted.crops, fitted.objects.crops])
    fractions = np.concatenate([fitted.fractions, fitted.objects.fractions])
    if len(np.unique(fractions > threshold)) < 2:
        raise InvalidInput(
            f"--task {threshold:g}: all {len(crops)} crops lie on one side of it, expected some with a share of stickers above"
        )
    vectors = np.column_stack([1 - fractions, fractions])
    return TaskNetwork(threshold, seed=seed).fit(Objects(vectors, crops=crops, fractions=fractions))
