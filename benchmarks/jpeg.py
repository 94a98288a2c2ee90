# SPDX-License-Identifier: Apache-2.0
"""What a JPEG decoder that reports damage costs beside OpenCV's, and how much damage each reports.

OMP_NUM_THREADS=1 python -m benchmarks.jpeg --json benchmarks/results/jpeg.json
"""

import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import cv2
import numpy as np

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import decode_compressed, encode_jpeg
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.rendering import render, sample_scene

SIZE = (1280, 960)
PICTURES, ROUNDS, DAMAGED = 4, 40, 100
LOST = (
    ("hole of 1 byte", 1),
    ("hole of 64 bytes", 64),
    ("hole of 512 bytes", 512),
    ("hole of 3000 bytes", 3000),
)


def main() -> None:
    """Measure all and write the file."""
    parser = argument_parser(__doc__)
    parser.add_argument("--json", type=result_file, required=True)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    files = [encode_jpeg(render(sample_scene(seed), SIZE).image) for seed in range(PICTURES)]
    opencv, ours = _milliseconds(files)
    measured = {
        "size": SIZE,
        "bytes": [len(file) for file in files],
        "opencv_ms": round(opencv, 2),
        "decode_compressed_ms": round(ours, 2),
        "ratio": round(ours / opencv, 2),
        "same_pixels": all(np.array_equal(decode_compressed(file), _opencv(file)) for file in files),
        "reported": _reported(files),
    }
    with atomic_write(arguments.json, "w") as stream:
        json.dump(measured, stream, indent=2)


def _opencv(file: bytes) -> Any:
    return cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)


def _milliseconds(files: list[bytes]) -> tuple[float, float]:
    """Medians of both in turns, in processor time: other load on the machine changes both alike."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for file in files:
            decoders: tuple[Callable[[bytes], Any], ...] = (_opencv, decode_compressed)
            for decode, times in zip(decoders, spent, strict=True):
                start = time.thread_time()
                decode(file)
                times.append((time.thread_time() - start) * 1e3)
    return median(spent[0]), median(spent[1])


def _reported(files: list[bytes]) -> dict[str, float]:
    """The share of damaged files that are refused, by damage inside the compressed data; the end marker stays."""
    draw = np.random.default_rng(0)
    kinds: dict[str, Callable[[bytearray, int], None]] = {"one bit flipped": _flip}
    kinds |= {name: partial(_cut, length=length) for name, length in LOST}
    kinds |= {name.replace("hole of", "zeros in"): partial(_zero, length=length) for name, length in LOST}
    shares = {}
    for name, damage in kinds.items():
        refused = 0
        for number in range(DAMAGED):
            data = bytearray(files[number % len(files)])
            first = data.rfind(b"\xff\xda") + 14
            damage(data, int(draw.integers(first, len(data) - 3010)))
            refused += _is_refused(bytes(data))
        shares[name] = refused / DAMAGED
    return shares


def _flip(data: bytearray, at: int) -> None:
    data[at] ^= 16


def _cut(data: bytearray, at: int, length: int) -> None:
    del data[at : at + length]


def _zero(data: bytearray, at: int, length: int) -> None:
    data[at : at + length] = bytes(length)


def _is_refused(data: bytes) -> bool:
    try:
        decode_compressed(data)
    except InvalidInput:
        return True
    return False


if __name__ == "__main__":
    main()
