# SPDX-License-Identifier: Apache-2.0
"""The real detector with the real network as a process, in which torch reports a broken GPU for images that begin with white."""

from __future__ import annotations

from typing import Any

import torch

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.nodes.common.lifecycle import exit_process, run_node
from sticker_uq.nodes.detector.node import DetectorNode

MESSAGE = "CUDA error: device-side assert triggered"


def main() -> None:
    encode = StochasticDetector.encode

    def failing(self: StochasticDetector, image: Any) -> Any:
        if image[0, 0, 0] == 255:
            raise torch.AcceleratorError(f"{MESSAGE}\nCompile with TORCH_USE_CUDA_DSA")
        return encode(self, image)

    StochasticDetector.encode = failing  # type: ignore[method-assign]
    exit_process(run_node(DetectorNode))


if __name__ == "__main__":
    main()
