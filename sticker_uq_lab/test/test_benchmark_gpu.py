# SPDX-License-Identifier: Apache-2.0
"""The measurements of a GPU, on the processor and on a simulated GPU; what a table says without and with results."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import gpu, gpu_parts
from sticker_uq.perception.dil import dil as saliency
from sticker_uq_lab.rendering import render, sample_scene
from test.detection.test_gpu import ones
from test.helpers.models import small_weights
from test.helpers.simulated_gpu import simulated_gpu

REPEATED = ("repeats", "gradient_repeats", "nan_found", "complete_passes_equal")
ROOT = Path(__file__).parents[2]
SSDLITE = "ssdlite320_mobilenet_v3_large"
ISOLATED = """
import sys
for name in ("rclpy", "sticker_uq_msgs", "pytest", "hypothesis", "typer", "rich", "pandas", "matplotlib", "rosbags",
             "torchmetrics", "pytorch_grad_cam", "skimage", "fastapi", "psutil"):
    sys.modules[name] = None

def refuse(event, details):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise RuntimeError("there is no network")

sys.addaudithook(refuse)
"""


def test_a_part_runs_without_ros_pytest_and_network_and_adds_its_rows(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(ISOLATED)
    out = tmp_path / "gpu.jsonl"
    earlier = {"part": "speed", "model": SSDLITE, "device": "cpu", "tf32": {"ratio": 2.0}, "error": "a crash"}
    out.write_text(json.dumps(earlier) + "\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(ROOT)
    options = f"--parts speed --models {SSDLITE} --precisions float32 --passes 2 --rounds 1".split()
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(out), "--device", "cpu", *options])
    assert gpu.main() == 0, out.read_text()
    assert len(out.read_text().splitlines()) == 2
    (row,) = gpu.read(out)
    assert (row["part"], row["model"], row["device"], row["passes"]) == ("speed", SSDLITE, "cpu", 2)
    assert row["tf32"] == {"ratio": 2.0}, "of an earlier run on the same device"
    assert "error" not in row
    assert row["float32"]["ratio"] > 0
    assert row["float32"]["repeats"]
    assert row["float32"]["assessment"]["p50"] <= row["float32"]["assessment"]["p99"]
    assert SSDLITE in gpu.table([row])


def test_it_says_that_there_is_no_gpu(tmp_path, monkeypatch, capsys):
    out = tmp_path / "gpu.jsonl"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(out), "--device", "cuda"])
    assert gpu.main() == 2
    assert capsys.readouterr().err.startswith("error: device 'cuda' does not exist (0 CUDA devices found)")
    assert not out.exists()


def test_a_part_that_ends_badly_is_a_row_and_the_next_one_runs(tmp_path, monkeypatch):
    """As one whose device broke, or that takes for ever."""

    def ended(command: list[str], timeout: float, **_: Any) -> subprocess.CompletedProcess[str]:
        part = command[command.index("--only") + 1]
        if part == "environment":
            raise subprocess.TimeoutExpired(command, timeout)
        if part == "kernels":
            return subprocess.CompletedProcess(
                command, 1, "", "Traceback\nRuntimeError: CUDA error: assert | \n"
            )
        Path(command[command.index("--result") + 1]).write_text('{"float32": {"images_per_s": 31.0}}')
        return subprocess.CompletedProcess(command, 0, "", "")

    out = tmp_path / "gpu.jsonl"
    monkeypatch.setattr(subprocess, "run", ended)
    options = ["--out", str(out), "--device", "cpu", "--models", SSDLITE, "--parts", *gpu.PARTS]
    monkeypatch.setattr(sys, "argv", ["gpu", *options, "--limit", "7"])
    assert gpu.main() == 1
    rows = gpu.read(out)
    assert [row["part"] for row in rows] == list(gpu.PARTS)
    assert rows[0]["error"] == "took longer than 7 s"
    assert rows[1]["error"] == "exit status 1: RuntimeError: CUDA error: assert |"
    assert rows[3]["float32"] == {"images_per_s": 31.0}


@pytest.fixture
def on_simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saliency, "objectness_gradients", ones)
    monkeypatch.setattr(gpu_parts, "objectness_gradients", ones)
    for name, value in {
        "synchronize": None,
        "reset_peak_memory_stats": None,
        "max_memory_allocated": 3 * 2**20,
        "mem_get_info": (2**33, 2**34),
        "get_arch_list": ["sm_90"],
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, found=value: found)
    monkeypatch.setattr(gpu_parts, "waits", lambda action: 3)
    # torch's own asks the driver at each operation
    monkeypatch.setattr(gpu_parts, "profile", lambda **_: nullcontext(SimpleNamespace(events=list)))


def test_the_parts_run_on_a_gpu(on_simulated_gpu, tmp_path, monkeypatch):
    small = str(small_weights(tmp_path)), [render(sample_scene(5), (320, 240)).image]
    monkeypatch.setattr(gpu_parts, "_weights", lambda model, arguments: small)
    arguments = Namespace(
        device="cuda",
        models=[SSDLITE],
        precisions=["tf32"],
        passes=2,
        min_size=480,
        rounds=1,
        result=tmp_path / "r",
    )
    rows = [{"part": "kernels", "model": "", "device": "cuda:0 Simulated"}]
    with simulated_gpu():
        assert gpu_parts.environment(arguments)["capability"] == (9, 0)
        found = gpu_parts.kernels(arguments)
        monkeypatch.setattr(gpu_parts, "_compiled", lambda *_: {})  # a compiler sees through the simulation
        for part in gpu.OF_A_MODEL:
            rows.append(rows[0] | {"part": part, "model": SSDLITE} | gpu.PARTS[part](arguments))
    assert [found[name] for name in ("masks_equal", "order_equal", "suppression_equal")] == [True] * 3
    assert found["pixels_most"] < 1e-5
    assert found["pooling_most"] < 1e-3
    agreement, costs, graphs, _ = rows[1:]
    assert [graphs["tf32"][name] for name in ("same_bytes", "same_assessments")] == [True] * 2
    assert graphs["tf32"]["ungraphed"] == ""
    assert agreement["tf32"]["matched"] == 1.0
    assert [agreement["tf32"][name] for name in REPEATED] == [True] * len(REPEATED)
    assert (costs["tf32"]["waits"], costs["tf32"]["peak_mb"]) == (3, 3.0)
    lines = gpu.table(json.loads(json.dumps(rows))).splitlines()
    assert lines[0].startswith("| cuda:0 Simulated | precision |")
    assert [line.split(" | ")[1] for line in lines[2:]] == ["tf32"]
    with simulated_gpu():
        arguments.precisions = None
        assert gpu_parts._precisions(arguments) == ["float32", "tf32", "bfloat16", "float16"]
    assert len({line.count("|") for line in lines}) == 1
