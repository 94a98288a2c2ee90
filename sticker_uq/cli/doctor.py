# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq doctor``: checks the installation."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from sticker_uq.cell.transport import PROFILE_VARIABLES
from sticker_uq.cli.terminal import output

MIB = 2**20
_SETUP = "run scripts/setup"
_SOURCE = "source scripts/env, or the setup file of your workspace"
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
_DISTRIBUTIONS = ("numpy", "opencv-python-headless", "hdbscan", "rosbags")
_OPTIONAL = {
    "launch_ros": "`sticker-uq cell` starts the same nodes",
    "cv_bridge": "images are converted by the package itself",
    "vision_msgs": "detections_2d is not published",
}


class CheckLevel(StrEnum):
    """Result level of a ``doctor`` check. OK: no problem; WARN: works with a restriction; FAIL: something does not work."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Check:
    """One finding of ``doctor``. ``advice`` says what to do, "" for nothing."""

    name: str
    level: CheckLevel
    found: str
    advice: str = ""


def run_checks() -> Iterator[Check]:
    """The findings of all ``doctor`` checks; a check that raises is a finding too."""
    for name, check in CHECKS.items():
        try:
            level, found, advice = check()
        except Exception as error:  # noqa: BLE001  # a broken installation breaks in its own ways
            level, found, advice = CheckLevel.FAIL, f"{type(error).__name__}: {error}", _SETUP
        yield Check(name, level, " ".join(found.split()), advice)


_Found = tuple[CheckLevel, str, str]


def _ok(found: str, note: str = "") -> _Found:
    return CheckLevel.OK, found, note


def _packages() -> _Found:
    names = ("numpy", "cv2", "hdbscan", "rosbags.rosbag2")
    for name in names:
        importlib.import_module(name)
    return _ok(", ".join(f"{name} {metadata.version(name)}" for name in _DISTRIBUTIONS))


def _optional() -> _Found:
    """What works without packages that only a ROS installation has."""
    missing = {name: instead for name, instead in _OPTIONAL.items() if find_spec(name) is None}
    return _ok(f"without {', '.join(missing)}" if missing else "all here", "; ".join(missing.values()))


def _ros() -> _Found:
    if find_spec("rclpy") is None:
        return (
            CheckLevel.FAIL,
            "rclpy cannot be imported",
            f"{_SOURCE}; replay, train and evaluate work without",
        )
    importlib.import_module("rclpy")
    distro = os.environ.get("ROS_DISTRO")
    if distro is None:
        return _ok("rclpy from PyPI (Jazzy), no ROS installation sourced")
    if distro != "jazzy":
        return CheckLevel.WARN, f"ROS 2 {distro}", "developed and tested for ROS 2 Jazzy"
    return _ok("ROS 2 jazzy")


def _middleware() -> _Found:
    name = importlib.import_module("rclpy").get_rmw_implementation_identifier()
    if name == "rmw_fastrtps_cpp":
        return _ok(name)
    return (
        CheckLevel.WARN,
        name,
        "images were tested with rmw_fastrtps_cpp; check that your middleware carries 3 MB messages",
    )


def _domain() -> _Found:
    text = os.environ.get("ROS_DOMAIN_ID", "0")
    reach = os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    if not text.isdigit() or int(text) > 232:
        return CheckLevel.FAIL, f"ROS_DOMAIN_ID={text}", "set ROS_DOMAIN_ID to a number from 0 to 101"
    if int(text) > 101:
        return (
            CheckLevel.WARN,
            f"ROS_DOMAIN_ID={text}",
            "above 101 its ports may collide with others on Linux",
        )
    return _ok(f"domain {text}, discovery {reach}")


def _messages() -> _Found:
    if find_spec("sticker_uq_msgs") is None:
        return (
            CheckLevel.FAIL,
            "sticker_uq_msgs cannot be imported",
            f"{_SOURCE}, after {_SETUP} or colcon build",
        )
    messages = importlib.import_module("sticker_uq_msgs.msg")
    messages.SceneAssessment()
    return _ok(f"sticker_uq_msgs at {Path(str(messages.__file__)).parent}")


def _torch() -> _Found:
    torch = importlib.import_module("torch")
    torchvision = importlib.import_module("torchvision")
    found = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    try:
        boxes = torch.tensor([[0.0, 0.0, 9.0, 9.0], [0.0, 0.0, 9.0, 8.0]])
        kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8]), 0.5).tolist()
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return (
            CheckLevel.FAIL,
            f"{found}: {error}",
            f"the versions do not match: {_SETUP}",
        )
    if kept != [0]:
        return CheckLevel.FAIL, f"{found}: box suppression gives {kept}", _SETUP
    wanted = int(torch.__version__.split(".")[1]) + 15  # torch 2.x matches torchvision 0.(x + 15)
    if int(torchvision.__version__.split(".")[1]) != wanted:
        return CheckLevel.WARN, found, f"torch {torch.__version__} needs torchvision 0.{wanted}"
    return _ok(found)


def _device() -> _Found:
    torch = importlib.import_module("torch")
    detector = importlib.import_module("sticker_uq.detection.detector")
    device = detector.resolve_device("auto")
    if device.type == "cpu":
        found = f"cpu in float32, {torch.get_num_threads()} threads: device auto finds no GPU"
        return CheckLevel.WARN, found, _no_gpu(torch.version.cuda)
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError as error:
        if "no kernel image" not in str(error):
            raise
        built = ", ".join(torch.cuda.get_arch_list())
        found = f"{detector.name_of(device)}, for which this PyTorch has no code (only for {built})"
        return CheckLevel.FAIL, found, "see docs/gpu.md for wheels, or set device to cpu"
    free, total = torch.cuda.mem_get_info()
    return _ok(f"{detector.name_of(device)} in float32 (IEEE), {free // MIB} of {total // MIB} MiB free")


def _no_gpu(cuda: str | None) -> str:
    """What to do where torch, built for that version of ``cuda``, finds no GPU."""
    meant = "set device to cpu if that is meant"
    if cuda is None:
        return f"{meant}; this PyTorch is built without CUDA: see docs/gpu.md for wheels"
    if not NVIDIA_DRIVER.exists():
        return f"{meant}; there is no NVIDIA driver on this machine ({NVIDIA_DRIVER} is missing)"
    return (
        f"a driver is there: check with nvidia-smi that it supports CUDA {cuda}, and that CUDA_VISIBLE_DEVICES or the container "
        "does not hide the GPU"
    )


def _weights() -> _Found:
    weights = importlib.import_module("sticker_uq.detection.weights")
    settings = importlib.import_module("sticker_uq.detection.settings")
    default = settings.DetectorSettings().model
    present = {
        name: path for name in settings.MODEL_NAMES if (path := weights.packaged_weights(name)) is not None
    }
    if default not in present:
        return (
            CheckLevel.FAIL,
            f"none for {default}",
            "create them with sticker-uq train; check that the package is completely installed",
        )
    checked = [f"{name} {weights.load_weights(path)[1]['checksum'][:12]}" for name, path in present.items()]
    return _ok(f"checksums right: {', '.join(checked)}")


def _transport() -> _Found:
    values = {name: value for name in PROFILE_VARIABLES if (value := os.environ.get(name))}
    if not values:
        return _ok("config/fastdds.xml, loaded by every node: UDP without shared memory")
    files = sorted(set(values.values()))
    missing = [file for file in files if not Path(file).is_file()]
    if missing:
        return (
            CheckLevel.FAIL,
            f"{', '.join(missing)} does not exist",
            f"correct or unset {', '.join(values)}",
        )
    if any(re.search(r"<type>\s*SHM\s*</type>", Path(file).read_text("utf-8")) for file in files):
        advice = f"a process that is killed can block the others for seconds: unset {', '.join(values)}"
        return CheckLevel.WARN, f"{', '.join(files)} has a shared-memory transport", advice
    return _ok(", ".join(files))


def _socket_buffers() -> _Found:
    try:
        largest = int(RMEM_MAX.read_text())
    except (OSError, ValueError):
        return (
            CheckLevel.WARN,
            f"{RMEM_MAX} cannot be read",
            "check that socket buffers can hold images of several MB",
        )
    found = f"at most {largest / MIB:.1f} MiB"
    if largest < 4 * MIB:
        advice = (
            "best-effort images are lost and reliable ones late: sudo sysctl -w net.core.rmem_max=16777216"
        )
        return CheckLevel.WARN, found, advice
    return _ok(found)


CHECKS: dict[str, Callable[[], _Found]] = {
    "ROS": _ros,
    "middleware": _middleware,
    "domain": _domain,
    "messages": _messages,
    "image transport": _transport,
    "socket buffers": _socket_buffers,
    "optional": _optional,
    "PyTorch": _torch,
    "device": _device,
    "packages": _packages,
    "weights": _weights,
}


_COLOURS = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.FAIL: "bold red"}


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check this machine, with advice on each finding. Exit status 1 when something does not work."""
    checks = list(run_checks())
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        output().print(_table(checks))
        counts = {level: sum(check.level is level for check in checks) for level in CheckLevel}
        typer.echo(
            f"{counts[CheckLevel.OK]} fine, {counts[CheckLevel.WARN]} with a restriction, {counts[CheckLevel.FAIL]} broken"
        )
    raise typer.Exit(int(any(check.level is CheckLevel.FAIL for check in checks)))


def _table(checks: list[Check]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        level = f"[{_COLOURS[check.level]}]{check.level}[/]"
        advice = f"\n[dim]-> {escape(check.advice)}[/]" if check.advice else ""
        table.add_row(level, check.name, escape(check.found) + advice)
    return table
