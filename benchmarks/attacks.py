# SPDX-License-Identifier: Apache-2.0
"""What white-box attacks do to the detectors: the curve over the iterations, and which model's attack breaks which.

    python -m benchmarks.attacks --scenes 50 --confidence 0.8
    python -m benchmarks.attacks --scenes 50 --model ssdlite320_mobilenet_v3_large --model MODEL=WEIGHTS[@MIN_SIZE]

Every model is attacked white-box on rendered scenes. mAP@0.5 is that of one pass without dropout with a score floor of 0.01, on
the pictures as they would be stored: clipped and rounded to 8 bits. A row of the second table is the model that was attacked, a
column the model that looks.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.cli.options import checked
from sticker_uq.detection import DetectorSettings, StochasticDetector, load_detector
from sticker_uq.evaluation.metrics.accuracy import mean_average_precision
from sticker_uq.io.coco import LabelledImage, read_coco, read_picture, write_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.attacks.white_box import Adversarial, Attack, DagSettings, variant_seed
from sticker_uq.lab.rendering import encode_scene, render, sample_scene

_SHOWN = (0, 1, 2, 5, 10, 20, 30, 40, 60, 80, 100, 150, 200, 300)
Picture = NDArray[np.uint8]


def main() -> None:
    """Print one curve per model and the transfer matrix."""
    parser = argument_parser(__doc__)
    parser.add_argument("--scenes", type=int, default=50)
    parser.add_argument("--first-scene", type=int, default=70_000)
    parser.add_argument("--size", default="640x480")
    parser.add_argument("--model", action="append", help="MODEL[=WEIGHTS[@MIN_SIZE]]")
    parser.add_argument("--mode", default="swap", choices=("swap", "vanish", "random"))
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--gamma", type=float, default=0.5)
    parser.add_argument("--confidence", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=5)
    parser.add_argument("--out", type=result_file, help="JSON file that the curves are added to")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    detectors = [_detector(text) for text in arguments.model or [DetectorSettings().model]]
    names = ("mode", "iterations", "gamma", "confidence")
    settings = checked(DagSettings, {name: getattr(arguments, name) for name in names})
    print(f"{arguments.scenes} scenes of {width}x{height} from seed {arguments.first_scene}; {settings}")
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(arguments.first_scene, arguments.first_scene + arguments.scenes)
        write_coco(folder, (encode_scene(s, render(sample_scene(s), (width, height)), "png") for s in seeds))
        items = read_coco(folder)
        clean = [read_picture(item) for item in items]
        attacked = {}
        curves = read(arguments.out) if arguments.out and arguments.out.exists() else []
        for detector in detectors:
            one, attacked[detector.name] = curve(detector, items, settings, arguments.batch)
            print(f"\n{table([one])}", flush=True)
            curves.append(one)
            if arguments.out:
                with atomic_write(arguments.out) as stream:
                    stream.write(json.dumps([asdict(c) for c in curves], indent=1).encode() + b"\n")
    print("\n| attacked | " + " | ".join(f"seen by {d.name}" for d in detectors) + " |")
    print("|---|" + "---|" * len(detectors))
    for name, pictures in {"none": clean, **attacked}.items():
        print(
            f"| {name} | " + " | ".join(f"{map50(d, pictures, items):.3f}" for d in detectors) + " |",
            flush=True,
        )


@dataclass(frozen=True)
class Curve:
    """The course of an attack on ``scenes`` scenes: ``states`` are its :class:`State` at some iterations."""

    model: str
    attack: str
    scenes: int
    clean: float
    states: list[dict[str, float]]


def batches(items: Sequence[LabelledImage], most: int) -> Iterator[list[LabelledImage]]:
    """``items`` to attack in order, in batches of at most ``most`` pictures of one size."""
    for _, run in groupby(items, key=lambda item: (item.width, item.height)):
        members = list(run)
        yield from (members[start : start + most] for start in range(0, len(members), most))


def curve(
    detector: StochasticDetector, items: Sequence[LabelledImage], settings: DagSettings, batch: int
) -> tuple[Curve, list[Picture]]:
    """Attack every picture; the course of the attack, and the pictures at the end."""
    states: dict[int, list[Adversarial]] = {}
    for members in batches(items, batch):
        seeds = [variant_seed(0, 0, item.path.name) for item in members]
        shown = {}
        running = Attack(detector, members, settings, seeds)
        for iteration in running.steps():
            if iteration in _SHOWN or iteration == settings.iterations:
                shown[iteration] = running.results()
        final = running.results()
        for iteration in [*(i for i in _SHOWN if i < settings.iterations), settings.iterations]:
            # an attack that has reached its goal earlier stays as it is
            states.setdefault(iteration, []).extend(shown.get(iteration, final))
    clean = map50(detector, [read_picture(item) for item in items], items)
    course = [
        {
            "iteration": iteration,
            "map50": map50(detector, [r.image for r in results], items),
            "rms": float(np.mean([r.rms for r in results])),
            "largest_rms": max(r.rms for r in results),
            "linf": max(r.linf for r in results),
            "fooled": sum(r.fooled for r in results) / max(sum(r.targets for r in results), 1),
        }
        for iteration, results in states.items()
    ]
    return Curve(detector.name, str(settings), len(items), clean, course), [
        r.image for r in states[settings.iterations]
    ]


def table(curves: Sequence[Curve]) -> str:
    """``curves`` in Markdown."""
    lines = [
        "| attack | iteration | mAP@0.5 | of clean | mean RMS | largest RMS | L-inf | targets fooled |",
        "|---" * 8 + "|",
    ]
    for one in curves:
        lines.append(
            f"| **{one.attack}**, on {one.model}, {one.scenes} scenes | clean | {one.clean:.3f} | 1.00 | 0 | 0 | 0 | |"
        )
        lines += [
            f"| | {state['iteration']} | {state['map50']:.3f} | {state['map50'] / one.clean:.2f} | {state['rms']:.2f} | "
            f"{state['largest_rms']:.2f} | {state['linf']:g} | {state['fooled']:.3f} |"
            for state in one.states
        ]
    return "\n".join(lines)


def read(file: Path) -> list[Curve]:
    """The curves in ``file``."""
    return [Curve(**one) for one in json.loads(file.read_text(encoding="utf-8"))]


def map50(detector: StochasticDetector, pictures: Sequence[Picture], items: Sequence[LabelledImage]) -> float:
    """mAP@0.5 of the detector without dropout on ``pictures`` with the labels of ``items``."""
    found = [detector.detect(detector.encode(picture)) for picture in pictures]
    return mean_average_precision(found, items).map50


def _detector(text: str) -> StochasticDetector:
    name, _, rest = text.partition("=")
    weights, _, min_size = rest.partition("@")
    values = {"model": name, "weights": weights, "score_floor": 0.01, "device": "auto"}
    return load_detector(
        DetectorSettings.model_validate(values | ({"min_size": int(min_size)} if min_size else {}))
    )


if __name__ == "__main__":
    main()
