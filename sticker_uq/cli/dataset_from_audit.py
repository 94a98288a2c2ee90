# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset from-audit``: operators' answers as training data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from sticker_uq.cli.options import output_folder
from sticker_uq.cli.terminal import tell_of_source
from sticker_uq.io.coco import EncodedScene, check_new_dataset, encode_picture, write_coco
from sticker_uq.lab.datasets.from_audit import BY_PERSON, AnsweredCase, answered_cases
from sticker_uq.scene import InvalidInput

_DESCRIPTION = "Answered interventions of the cell: boxes by an operator, or by the policy"


def command(
    audit: Annotated[Path, typer.Option(help="Folder of the supervisor's audit log.")],
    recording: Annotated[
        list[Path],
        typer.Option(help="Recording of the same time; may be repeated."),
    ],
    out: Annotated[Path, output_folder("Folder to write images/ and annotations.json to.")],
    topic: Annotated[
        str | None, typer.Option(help="Image topic of the recordings, if they have several.")
    ] = None,
) -> None:
    """Write every answered intervention as a labelled picture of a COCO folder, for train and calibrate.

    The log is verified first, so that no altered answer is used. A picture with an unanswered object is left
    out. "Peel it" and a drawn box become a sticker, "leave it" a logo, "nothing is there" no box; what was not in question is
    labelled as the policy decided, with "source": "policy" in its annotation.
    """
    left_out: Counter[str] = Counter()
    said: Counter[str] = Counter()

    def usable(cases: Iterable[AnsweredCase]) -> Iterator[EncodedScene]:
        for number, case in enumerate(cases):
            if case.picture is None:
                left_out[case.problem] += 1
                continue
            said.update(box.source for box in case.boxes)
            yield _encoded(number, case)

    lost: list[bool] = []

    def read(source: Path, remarks: Sequence[str], what: str) -> None:
        lost.append(tell_of_source(source, remarks, what))

    check_new_dataset(out)
    scenes = usable(answered_cases(audit, recording, topic, read))
    first = next(scenes, None)  # an empty data set is not written
    written = 0 if first is None else write_coco(out, chain([first], scenes), description=_DESCRIPTION)
    for problem, count in sorted(left_out.items()):
        typer.echo(f"left out {count}: {problem}")
    if not written:
        raise InvalidInput(f"{audit}: none of {sum(left_out.values())} answers gives a labelled picture")
    people = said[BY_PERSON]
    typer.echo(
        f"{written} pictures in {out}: {people} boxes by operators, {sum(said.values()) - people} by the policy"
    )
    if any(lost):
        raise typer.Exit(1)


def _encoded(number: int, case: AnsweredCase) -> EncodedScene:
    assert case.picture is not None
    height, width = case.picture.shape[:2]
    question = case.question
    return EncodedScene(
        seed=number,
        format="png",
        data=encode_picture(case.picture, "png"),
        width=width,
        height=height,
        boxes=np.array([box.box for box in case.boxes], np.float32).reshape(-1, 4),
        labels=np.array([box.label for box in case.boxes], np.int64),
        image_fields={
            "request_id": question.request_id,
            "workpiece_id": question.workpiece_id,
            "stamp_ns": question.image_stamp_ns,
            "person": question.person,
        },
        box_fields=tuple({"source": box.source} for box in case.boxes),
    )
