# SPDX-License-Identifier: Apache-2.0
"""How far foreign photographs lie from rendered laptops by the photo network's features, beside the packaged novelty network.

    python -m benchmarks.photo_scenes --fit FOLDER... --held FOLDER... --test FOLDER... --foreign NAME=FOLDER... --out FILE.json

COCO folders of rendered laptops: a Gaussian is fitted to the first, its unit to the second, and the limits, at which each network
calls FALSE_ALARMS of them foreign, to half of the third; the other half shows how many that are. Of folders of any pictures it is
counted what lies within the limit of either network, of both, and of the packaged policy.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.gate import Policy
from sticker_uq.io.coco import LabelledImage, pictures_of, read_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.io.share import share_folder
from sticker_uq.perception.novelty.network import (
    SIZE,
    SceneReference,
    input_size,
    packaged_network,
    scene_activations,
)
from sticker_uq.perception.novelty.photo_network import (
    CHANNELS,
    PhotoNetwork,
    load_photo_network,
    photo_input,
)
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.training.novelty_training import set_reference

FALSE_ALARMS = 0.01
MAPS = 2
"""Maps that the distance reads, fine to coarse: means and standard deviations of each of their channels."""
Picture = NDArray[np.uint8]


def activations(network: PhotoNetwork, image: Picture) -> Tensor:
    """Means, then standard deviations, of the first MAPS maps of the whole ``image``."""
    height, width = image.shape[:2]
    small = cv2.resize(image, input_size(width, height, SIZE), interpolation=cv2.INTER_AREA)
    with torch.inference_mode():
        maps = network(photo_input(np.asarray(small, np.uint8)[None]))[:MAPS]
    deviations, means = zip(*(torch.std_mean(one[0], dim=(1, 2)) for one in maps), strict=True)
    return torch.cat([*means, *deviations])


def pictures_in(folder: Path) -> Iterator[tuple[str, Picture]]:
    """Name and picture of every file below ``folder`` that can be read."""
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in (".jpg", ".jpeg", ".png"):
            image = cv2.imread(str(file), cv2.IMREAD_COLOR)
            if image is not None:
                yield file.name, np.asarray(image, np.uint8)


def items_of(folders: Sequence[Path]) -> list[LabelledImage]:
    return [item for folder in folders for item in read_coco(folder)]


def measured(
    fit: Sequence[Path], held: Sequence[Path], test: Sequence[Path], foreign: Mapping[str, Path]
) -> dict[str, Any]:
    photo, packaged = load_photo_network(), packaged_network(load_detector(DetectorSettings(device="cpu")))
    assert packaged is not None
    reference = SceneReference(2 * sum(CHANNELS[:MAPS]))
    set_reference(reference, lambda image: activations(photo, image), items_of(fit), items_of(held))

    def distances(image: Picture) -> tuple[float, float]:
        own = reference.distance(activations(photo, image))
        return own, packaged.reference.distance(scene_activations(packaged, image))

    known = np.array([distances(picture) for _, picture in pictures_of(items_of(test))])
    limits = np.quantile(known[::2], 1 - FALSE_ALARMS, axis=0)
    shipped = Policy.load(share_folder() / "config" / "policy.yaml").max_scene_distance * packaged.limit
    rows: dict[str, Any] = {}
    for name, folder in foreign.items():
        names, found = zip(
            *((name, distances(picture)) for name, picture in pictures_in(folder)), strict=True
        )
        rows[name] = _row(np.array(found), limits, shipped)
        rows[name]["let pass by policy"] = [
            n for n, one in zip(names, found, strict=True) if one[1] <= shipped
        ]
        rows[name]["of these by photo"] = [
            n for n, one in zip(names, found, strict=True) if one[1] <= shipped and one[0] <= limits[0]
        ]
        print(
            name, {key: value for key, value in rows[name].items() if not isinstance(value, list)}, flush=True
        )
    return {
        "limits": limits.tolist(),
        "shipped": shipped,
        "rendered": _row(known[1::2], limits, shipped),
        "foreign": rows,
    }


def _row(found: NDArray[np.float64], limits: NDArray[np.float64], shipped: float) -> dict[str, Any]:
    within = found <= limits
    return {
        "pictures": len(found),
        "within, photo": int(within[:, 0].sum()),
        "within, packaged": int(within[:, 1].sum()),
        "within, both": int(within.all(axis=1).sum()),
        "within, policy": int((found[:, 1] <= shipped).sum()),
        "within, policy and photo": int(((found[:, 1] <= shipped) & within[:, 0]).sum()),
        "median, photo": round(float(np.median(found[:, 0])), 3),
        "median, packaged": round(float(np.median(found[:, 1])), 3),
    }


def read(file: Path) -> dict[str, Any]:
    """What a run wrote to ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def table(found: Mapping[str, Any]) -> str:
    """How many pictures of each kind lie within the limits, in Markdown."""
    sets = {"rendered laptops, not used for anything else": found["rendered"], **found["foreign"]}
    columns = {
        "within, photo": "within by the photo network",
        "within, packaged": "by the novelty network at as many false alarms",
        "within, both": "by both",
        "within, policy": "by `config/policy.yaml`",
        "within, policy and photo": "by that and the photo network",
    }
    rows = [(name, str(one["pictures"]), *(str(one[key]) for key in columns)) for name, one in sets.items()]
    return as_markdown([Table(("pictures", "", *columns.values()), rows)]).strip()


def main() -> int:
    parser = argument_parser(__doc__)
    for name in ("fit", "held", "test"):
        parser.add_argument(f"--{name}", type=Path, nargs="+", required=True)
    parser.add_argument("--foreign", nargs="+", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--out", type=result_file, required=True)
    asked = parser.parse_args()
    try:
        foreign = {name: Path(folder) for name, _, folder in (one.partition("=") for one in asked.foreign)}
        found = measured(asked.fit, asked.held, asked.test, foreign)
    except (InvalidInput, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    with atomic_write(asked.out, "w") as stream:
        stream.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
