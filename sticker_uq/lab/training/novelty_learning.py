# SPDX-License-Identifier: Apache-2.0
"""Novelty detection from clean labelled pictures: trained, its reference fitted and its quality measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from sticker_uq.detection import StochasticDetector
from sticker_uq.io.coco import LabelledImage
from sticker_uq.lab.training.novelty_quality import measured, pictures_read, split
from sticker_uq.lab.training.novelty_training import epochs_for, learn_network, mobile_blocks
from sticker_uq.novelty.network import NoveltyNetwork

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""


def learn_novelty_network(
    detector: StochasticDetector,
    pictures: Sequence[LabelledImage],
    start: NoveltyNetwork | None = None,
    epochs: int | None = None,
    seed: int = 0,
    progress: Progress = lambda stage, done, total: None,
) -> NoveltyNetwork:
    """A trained novelty network with its quality, which started from ``start`` or from the backbone of ``detector``.

    A fifth of ``pictures`` is held out to measure it on. ``epochs`` None: as many as :func:`epochs_for` says; with 0 ``start`` is
    only measured anew. Raises InvalidInput for fewer than 50 pictures, and a picture that cannot be read.
    """
    learned, held = split(pictures, seed)
    epochs = epochs_for(len(learned)) if epochs is None else epochs
    begin = mobile_blocks(detector) if start is None else start
    if epochs or not isinstance(begin, NoveltyNetwork):
        done = 0

        def on_batch(size: int, loss: float) -> None:
            nonlocal done
            done += size
            progress("learning", done, len(learned) * epochs)

        model = learn_network(learned, begin, epochs, seed, on_batch)
    else:
        model = begin
    total, counted = pictures_read(len(learned), len(held)) + len(held), count(1)
    model.quality = measured(model, learned, held, seed, lambda: progress("measuring", next(counted), total))
    return model
