# SPDX-License-Identifier: Apache-2.0
"""Images assessed in their order, decoded ahead, on this machine or in several processes; assessments as JSON values, so that a
second calibration or another policy needs no detector run.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from sticker_uq.evaluation.executors import worker_pool
from sticker_uq.io.sources import ImageSource, SourceImage
from sticker_uq.perception.factory import load_perception
from sticker_uq.perception.image_facts import ImageFacts, image_facts
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.plain import from_plain, to_plain
from sticker_uq.scene import InvalidInput, SceneAssessment

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception

_PERCEPTION = ("scene.py", "plain.py", "detection", "uncertainty", "perception")


@cache
def code_fingerprint(*further: Path) -> str:
    """Digest for caches of assessments: source code of perception and of ``further`` files and folders, 16 hex digits."""
    root = Path(__file__).parents[2]
    digest = hashlib.blake2b(digest_size=8)
    for part in (*(root / name for name in _PERCEPTION), *further):
        for file in [part] if part.suffix == ".py" else sorted(part.rglob("*.py")):
            digest.update(file.relative_to(part.parent).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def assessment_to_plain(assessment: SceneAssessment) -> dict[str, Any]:
    """``assessment`` as JSON can hold it, without timings and saliency map."""
    return dict(to_plain(assessment, leave_out=("timings", "saliency")))


def assessment_from_plain(plain: Mapping[str, Any]) -> SceneAssessment:
    """The inverse of :func:`assessment_to_plain`; the digest is the same."""
    return from_plain(SceneAssessment, plain)


T = TypeVar("T")
_END: Any = object()


def ahead(items: Iterable[T], depth: int, name: str) -> Generator[T, None, None]:
    """``items`` in order; a thread called ``name`` takes at most ``depth`` of them in advance.

    What taking them raises is raised here, after the items before it. Closing this generator ends the thread, once the item
    under way is there, and closes ``items`` where it is a generator: none of it outlives this.
    """
    source = iter(items)
    thread = ThreadPoolExecutor(1, thread_name_prefix=name)
    waiting = deque(thread.submit(next, source, _END) for _ in range(depth))
    try:
        while True:
            item = waiting.popleft().result()
            if item is _END:
                return
            waiting.append(thread.submit(next, source, _END))
            yield item
            del item  # a picture must not live as long as its successor takes
    finally:
        thread.shutdown(cancel_futures=True)
        if isinstance(items, Generator):
            items.close()


Assessed = Iterator[tuple[SourceImage, SceneAssessment]]

_WORTH_A_PROCESS = 40  # images; loading torch takes as long as assessing some of them
_MEMORY_OF_A_PROCESS = 2 * 2**30
_MOST_PROCESSES = 16
_READ_AHEAD = 4  # images that wait for the model
_DONE_AHEAD = 4  # assessments that wait for whoever writes


def one_by_one(source: ImageSource, perception: Perception) -> Assessed:
    """Every image of `source` with its assessment, in order, assessed in this process.

    Three threads: one reads, decodes and measures what needs no model, one assesses, and the caller's takes the results; each
    may be a few images ahead of the next, so that the model waits neither for a disk nor for whoever writes.
    """
    reader = ahead(_measure_facts(source), _READ_AHEAD, "reader")
    return ahead(_each_assessed(reader, perception), _DONE_AHEAD, "model")


def _measure_facts(source: ImageSource) -> Generator[tuple[SourceImage, ImageFacts | None], None, None]:
    for item in source:
        yield item, None if item.image is None else image_facts(item.image)


def _each_assessed(
    images: Generator[tuple[SourceImage, ImageFacts | None], None, None], perception: Perception
) -> Generator[tuple[SourceImage, SceneAssessment], None, None]:
    with closing(images):
        for item, facts in images:
            yield item, _assess(item, perception, facts)


def side_by_side(source: ImageSource, load: Callable[[], Perception], processes: int) -> Assessed:
    """Every image of `source` with its assessment, in order, assessed in so many processes.

    `load` makes the perception of each process and must be picklable; what it raises is raised here.
    """
    under_way: deque[tuple[SourceImage, Future[SceneAssessment]]] = deque()
    with worker_pool(processes, partial(_keep, load)) as pool:
        for item in source:
            under_way.append((item, pool.submit(_assess_in_process, item)))
            if len(under_way) >= 2 * processes:
                done, assessment = under_way.popleft()
                yield done, assessment.result()
        for done, assessment in under_way:
            yield done, assessment.result()


def identity_of(perception: Perception) -> str:
    """What decides an assessment besides the image: weights, settings, panel, and the code that uses them."""
    return f"{perception.model_hash}:{perception.settings_hash}:{perception.panel_hash}:{code_fingerprint()}"


@cache
def same_perception(settings: PerceptionSettings, identity: str) -> Perception:
    """The perception of ``settings``, kept for the next task of this process.

    Raises InvalidInput unless it is that of ``identity``: another machine may have other weights, devices or code.
    """
    perception = load_perception(settings)
    if identity_of(perception) != identity:
        raise InvalidInput(
            f"{platform.node()}: weights, device or code differ from those of the machine that spreads the work; expected the "
            "same everywhere, for example --device cpu and one version of sticker_uq"
        )
    return perception


def assess_apart(
    item: SourceImage, settings: PerceptionSettings, identity: str
) -> tuple[SourceImage, SceneAssessment]:
    """``item`` and its assessment without pixels, which need not travel between processes; raises as :func:`same_perception`."""
    assessment = _assess(item, same_perception(settings, identity), keep_saliency=False)
    return replace(item, image=None), assessment


def process_count(settings: PerceptionSettings, images: int) -> int:
    """In how many processes `images` are assessed fastest: one on a GPU and where torch may use all cores by itself."""
    if settings.threads == 0 or _uses_gpu(settings.device):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    fitting = psutil.virtual_memory().available // _MEMORY_OF_A_PROCESS
    return max(min(cores // settings.threads, fitting, images // _WORTH_A_PROCESS, _MOST_PROCESSES), 1)


def _uses_gpu(device: str) -> bool:
    if device != "auto":
        return device != "cpu"
    import torch  # only where it has to be asked

    return bool(torch.cuda.is_available())


def _assess(
    item: SourceImage, perception: Perception, facts: ImageFacts | None = None, keep_saliency: bool = True
) -> SceneAssessment:
    if item.image is None:
        return perception.failed_assessment(item.stamp_ns, item.frame_id, item.error)
    try:
        return perception.assess(item.image, item.stamp_ns, item.frame_id, keep_saliency, facts)
    except InvalidInput as error:
        return perception.failed_assessment(item.stamp_ns, item.frame_id, str(error))


_loads: list[Callable[[], Perception]] = []


def _keep(load: Callable[[], Perception]) -> None:
    _loads[:] = [load]


@cache
def _own_perception() -> Perception:
    return _loads[0]()


def _assess_in_process(item: SourceImage) -> SceneAssessment:
    return _assess(item, _own_perception())
