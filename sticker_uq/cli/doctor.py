# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq doctor``: checks the installation."""

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

import typer

from sticker_uq.cell.transport import PROFILE_VARIABLES
from sticker_uq.cli import option

MIB = 2**20
_SETUP = "run scripts/setup"
_SOURCE = "source scripts/env, or the setup file of your workspace"
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
_RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")
_OPTIONAL = {
    "launch_ros": "`sticker-uq cell` starts the same nodes",
    "cv_bridge": "images are converted by the package itself",
    "vision_msgs": "detections_2d is not published",
}


class CheckLevel(StrEnum):
    """OK: no problem; WARN: works with a restriction; FAIL: something does not work."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


OK, WARN, FAIL = CheckLevel


@dataclass(frozen=True)
class Check:
    """One finding. ``advice`` says what to do, "" for nothing."""

    name: str
    level: CheckLevel
    found: str
    advice: str = ""


_Found = tuple[CheckLevel, str] | tuple[CheckLevel, str, str]


def run_checks() -> Iterator[Check]:
    """The findings of all checks; one that raises is a finding too."""
    for name, check in CHECKS.items():
        try:
            level, found, *advice = check()
        except Exception as error:  # noqa: BLE001  # a broken installation breaks in its own ways
            level, found, advice = FAIL, f"{type(error).__name__}: {error}", [_SETUP]
        yield Check(name, level, " ".join(found.split()), *advice)


def _packages() -> _Found:
    for name in ("numpy", "cv2", "hdbscan", "rosbags.rosbag2"):
        importlib.import_module(name)
    distributions = ("numpy", "opencv-python-headless", "hdbscan", "rosbags")
    return OK, ", ".join(f"{name} {metadata.version(name)}" for name in distributions)


def _optional() -> _Found:
    """What works without packages that only a ROS installation has."""
    missing = {name: instead for name, instead in _OPTIONAL.items() if find_spec(name) is None}
    return OK, f"without {', '.join(missing)}" if missing else "all here", "; ".join(missing.values())


def _ros() -> _Found:
    if find_spec("rclpy") is None:
        return FAIL, "rclpy cannot be imported", f"{_SOURCE}; replay, train and evaluate work without"
    importlib.import_module("rclpy")
    distro = os.environ.get("ROS_DISTRO")
    if distro is None:
        return OK, "rclpy from PyPI (Jazzy), no ROS installation sourced"
    if distro != "jazzy":
        return WARN, f"ROS 2 {distro}", "developed and tested for ROS 2 Jazzy"
    return OK, "ROS 2 jazzy"


def _middleware() -> _Found:
    wanted = os.environ.get("RMW_IMPLEMENTATION", "")
    if wanted and not _is_installed(wanted):
        del os.environ[
            "RMW_IMPLEMENTATION"
        ]  # with it the other checks would end with rclpy, which ends the process
        package = f"ros-jazzy-{wanted.replace('_', '-')}"
        return (
            FAIL,
            f"RMW_IMPLEMENTATION={wanted} is not installed",
            f"install {package}, or unset RMW_IMPLEMENTATION",
        )
    if find_spec("rclpy") is None:
        return FAIL, "rclpy cannot be imported", _SOURCE
    name = importlib.import_module("rclpy").get_rmw_implementation_identifier()
    if name == "rmw_fastrtps_cpp":
        return OK, name
    return WARN, name, "tested with rmw_fastrtps_cpp; check that your middleware carries 3 MB messages"


def _is_installed(middleware: str) -> bool:
    """Also where that is not known."""
    prefixes = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    indexes = [Path(prefix, "share/ament_index/resource_index/packages") for prefix in prefixes if prefix]
    return not indexes or any((index / middleware).exists() for index in indexes)


def _domain() -> _Found:
    text = os.environ.get("ROS_DOMAIN_ID", "0")
    if not text.isdigit() or int(text) > 232:
        return FAIL, f"ROS_DOMAIN_ID={text}", "set ROS_DOMAIN_ID to a number from 0 to 101"
    if int(text) > 101:
        return WARN, f"ROS_DOMAIN_ID={text}", "above 101 its ports may collide with others on Linux"
    server = os.environ.get("ROS_DISCOVERY_SERVER", "")
    found = (
        f"domain {text}, discovery {{}}{f', by the server {server} (ROS_DISCOVERY_SERVER)' if server else ''}"
    )
    if os.environ.get("ROS_LOCALHOST_ONLY") == "1":  # it overrides the range
        return OK, found.format("LOCALHOST (ROS_LOCALHOST_ONLY)")
    discovery = os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    if discovery == "OFF":
        return (
            FAIL,
            found.format("OFF"),
            "no node finds another: set ROS_AUTOMATIC_DISCOVERY_RANGE to SUBNET or LOCALHOST",
        )
    if discovery not in _RANGES:
        return (
            WARN,
            found.format(discovery),
            f"set ROS_AUTOMATIC_DISCOVERY_RANGE to one of {', '.join(_RANGES)}",
        )
    return OK, found.format(discovery)


def _messages() -> _Found:
    if find_spec("sticker_uq_msgs") is None:
        return FAIL, "sticker_uq_msgs cannot be imported", f"{_SOURCE}, after {_SETUP} or colcon build"
    messages = importlib.import_module("sticker_uq_msgs.msg")
    messages.SceneAssessment()
    return OK, f"sticker_uq_msgs at {Path(str(messages.__file__)).parent}"


def _torch() -> _Found:
    import torch
    import torchvision

    found = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    try:
        torchvision.ops.nms(torch.tensor([[0.0, 0.0, 9.0, 9.0]]), torch.tensor([0.9]), 0.5)
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return FAIL, f"{found}: {error}", f"the versions do not match: {_SETUP}"
    wanted = int(torch.__version__.split(".")[1]) + 15  # torch 2.x matches torchvision 0.(x + 15)
    if int(torchvision.__version__.split(".")[1]) != wanted:
        return WARN, found, f"torch {torch.__version__} needs torchvision 0.{wanted}"
    return OK, found


def _device() -> _Found:
    import torch

    from sticker_uq.detection import detector

    device = detector.resolve_device("auto")
    if device.type == "cpu":
        found = f"cpu in float32, {torch.get_num_threads()} threads: device auto finds no GPU"
        return WARN, found, f"set device to cpu if that is meant; {_why_no_gpu(torch.version.cuda)}"
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError as error:
        if "no kernel image" not in str(error):
            raise
        built = ", ".join(torch.cuda.get_arch_list())
        found = f"{detector.name_of(device)}, for which this PyTorch has no code (only for {built})"
        return FAIL, found, "see docs/gpu.md for wheels, or set device to cpu"
    free, total = torch.cuda.mem_get_info()
    return OK, f"{detector.name_of(device)} in float32 (IEEE), {free // MIB} of {total // MIB} MiB free"


def _why_no_gpu(cuda: str | None) -> str:
    if cuda is None:
        return "this PyTorch is built without CUDA: see docs/gpu.md for wheels"
    if not NVIDIA_DRIVER.exists():
        return f"there is no NVIDIA driver on this machine ({NVIDIA_DRIVER} is missing)"
    return f"check with nvidia-smi that it supports CUDA {cuda}, and that CUDA_VISIBLE_DEVICES or the container hides no GPU"


def _weights() -> _Found:
    from sticker_uq.detection import settings, weights

    paths = {name: weights.packaged_weights(name) for name in settings.MODEL_NAMES}
    close_ups = weights.close_up_weights(default := settings.DetectorSettings().model)
    files = [path for path in (*paths.values(), close_ups) if path]
    found = [f"{path.stem} {weights.load_weights(path)[1]['checksum'][:12]}" for path in files]
    if paths[default] is None or close_ups is None:
        advice = "create them with sticker-uq train, or install the package completely"
        return FAIL, f"none for {default}" + (", for close-ups" if paths[default] else ""), advice
    return OK, f"checksums right: {', '.join(found)}"


def _transport() -> _Found:
    values = {name: value for name in PROFILE_VARIABLES if (value := os.environ.get(name))}
    if not values:
        return OK, "config/fastdds.xml, loaded by every node: UDP without shared memory"
    files = sorted(set(values.values()))
    if missing := [file for file in files if not Path(file).is_file()]:
        return FAIL, f"{', '.join(missing)} does not exist", f"correct or unset {', '.join(values)}"
    if any(re.search(r"<type>\s*SHM\s*</type>", Path(file).read_text("utf-8")) for file in files):
        advice = f"a process that is killed can block the others for seconds: unset {', '.join(values)}"
        return WARN, f"{', '.join(files)} has a shared-memory transport", advice
    return OK, ", ".join(files)


def _socket_buffers() -> _Found:
    try:
        largest = int(RMEM_MAX.read_text())
    except (OSError, ValueError):
        return WARN, f"{RMEM_MAX} cannot be read", "check that socket buffers can hold images of several MB"
    advice = "best-effort images are lost and reliable ones late: sudo sysctl -w net.core.rmem_max=16777216"
    found = f"at most {largest / MIB:.1f} MiB"
    return (WARN, found, advice) if largest < 4 * MIB else (OK, found)


CHECKS: dict[str, Callable[[], _Found]] = {
    "middleware": _middleware,
    "ROS": _ros,
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


def command(as_json: bool = option(False, "Print the findings as JSON.", "--json")) -> None:
    """Check this machine, with advice on each finding. Exit status 1 when something does not work."""
    checks = list(run_checks())
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        for check in checks:
            advice = f"\n      -> {check.advice}" if check.advice else ""
            typer.echo(f"{check.level:4}  {check.name:15}  {check.found}{advice}")
        counts = [sum(check.level is level for check in checks) for level in (OK, WARN, FAIL)]
        typer.echo("{} fine, {} with a restriction, {} broken".format(*counts))
    raise typer.Exit(int(any(check.level is FAIL for check in checks)))
