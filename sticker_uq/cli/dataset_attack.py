# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset attack``: adversarial pictures by the white-box attack DAG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from sticker_uq.cli.options import checked, field_options, output_folder
from sticker_uq.cli.terminal import counting
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.io.coco import (
    EncodedScene,
    LabelledImage,
    check_new_dataset,
    encode_picture,
    read_coco,
    write_coco,
)

if TYPE_CHECKING:
    from sticker_uq.detection.detector import StochasticDetector
    from sticker_uq.lab.attacks.white_box import Adversarial, DagSettings


@field_options("detector_values", DetectorSettings, "model", "weights", "min_size", "device")
def command(
    data: Annotated[Path, typer.Option(help="COCO folder whose pictures are attacked.")],
    out: Annotated[
        Path, output_folder("Folder to write one COCO folder per variant to: adv-00, adv-01, ...")
    ],
    detector_values: dict[str, Any],
    mode: Annotated[
        str,
        typer.Option(
            metavar="swap|vanish|random",
            help="Target classes: swap (logo and sticker), vanish (background) or random.",
        ),
    ] = "swap",
    iterations: Annotated[int, typer.Option(help="Highest number of iterations per picture.")] = 150,
    gamma: Annotated[
        float, typer.Option(help="Highest change of a pixel in one iteration, grey levels.")
    ] = 0.5,
    confidence: Annotated[
        float,
        typer.Option(
            help="Probability that the target class must reach; 0: higher than that of the true class."
        ),
    ] = 0.0,
    start: Annotated[float, typer.Option(help="Highest random change at the start, grey levels.")] = 1.0,
    variants: Annotated[int, typer.Option(min=1, help="Attacks per picture, each with its own seed.")] = 1,
    count: Annotated[int, typer.Option(min=0, help="How many pictures of --data; 0: all.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Pictures per batch.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the attacks.")] = 0,
) -> None:
    """Attack labelled pictures white-box; the annotations record the perturbation and the success."""
    # only this command needs torch
    from sticker_uq.detection import load_detector
    from sticker_uq.lab.attacks.white_box import DagSettings

    values: dict[str, Any] = {"mode": mode, "gamma": gamma, "iterations": iterations}
    attack = checked(DagSettings, values | {"confidence": confidence, "start": start})
    settings = checked(DetectorSettings, detector_values)
    items = read_coco(data)[: count or None]
    folders = [out / f"adv-{variant:02d}" for variant in range(variants)]
    for folder in folders:
        check_new_dataset(folder)
    detector = load_detector(settings)
    made: list[Adversarial] = []
    with counting() as bar:
        task = bar.add_task("attacking", total=variants * len(items))

        def done(result: Adversarial) -> None:
            made.append(result)
            bar.advance(task)

        for variant, folder in enumerate(folders):
            scenes = _scenes(detector, items, attack, seed, variant, batch, done)
            description = f"DAG against {settings.model} on {data.name}"
            write_coco(folder, scenes, description=description)
    _print(made, out)


def _scenes(
    detector: StochasticDetector,
    items: Sequence[LabelledImage],
    settings: DagSettings,
    seed: int,
    variant: int,
    batch: int,
    done: Callable[[Adversarial], None],
) -> Iterator[EncodedScene]:
    from sticker_uq.lab.attacks.white_box import attack, batches, variant_seed

    for members in batches(items, batch):
        seeds = [variant_seed(seed, variant, item.path.name) for item in members]
        for item, found, drawn in zip(
            members, attack(detector, members, settings, seeds), seeds, strict=True
        ):
            facts = {
                "model": detector.name,
                "weights": detector.weights_hash,
                **settings.model_dump(),
                "seed": drawn,
                "iterations_used": found.iterations,
                "linf": found.linf,
                "rms": found.rms,
                "targets": found.targets,
                "fooled": found.fooled,
            }
            done(found)
            yield EncodedScene(
                seed=item.image_id,
                format="png",  # a lossy format would change the attack
                data=encode_picture(found.image, "png"),
                width=item.width,
                height=item.height,
                boxes=item.boxes,
                labels=item.labels,
                image_fields={"source": item.path.name, "attack": facts},
            )


def _print(made: Sequence[Adversarial], out: Path) -> None:
    attacked = [found for found in made if found.targets]
    if not attacked:
        typer.echo(f"{len(made)} pictures in {out}; the model detected nothing to attack")
        return
    rms, linf = [found.rms for found in attacked], [found.linf for found in attacked]
    typer.echo(
        f"{len(made)} pictures in {out}: {np.mean([found.success for found in attacked]):.1%} of the targets fooled, RMS "
        f"{np.mean(rms):.2f} (at most {np.max(rms):.2f}) and L-inf at most {np.max(linf):g} grey levels"
    )
