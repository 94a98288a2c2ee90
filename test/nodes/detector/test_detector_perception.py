# SPDX-License-Identifier: Apache-2.0
"""The detector node with the real perception and the packaged weights."""

from pathlib import Path

import pytest
import torch

from sticker_uq import detection
from sticker_uq.nodes.detector.node import DetectorNode
from sticker_uq.testing.bench import overrides

SETTINGS = {"passes": 5, "threads": torch.get_num_threads(), "device": "cpu"}


@pytest.mark.parametrize("broken", ["missing", "garbage", "another model"])
def test_weights_that_cannot_be_used_fail_configure_with_the_reason(bench, tmp_path, broken):
    path = tmp_path / "weights.safetensors"
    values: dict[str, object] = {**SETTINGS, "weights": str(path)}
    if broken == "garbage":
        path.write_bytes(bytes(range(256)) * 8)
    elif broken == "another model":
        packaged = Path(detection.__file__).parent / "weights"
        values["weights"] = str(packaged / "ssdlite320_mobilenet_v3_large.safetensors")
        values["model"] = "ssd300_vgg16"
    node = bench.add(DetectorNode(parameter_overrides=overrides(**values)))
    assert not bench.transition("detector", "configure")
    assert bench.state("detector") == "unconfigured"
    assert str(values["weights"]) in node.last_failure
    assert not node.last_failure.startswith("configure failed: RuntimeError")
