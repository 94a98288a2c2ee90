# SPDX-License-Identifier: Apache-2.0
"""The processes of a cell with their parameters and names, for the launch files and the runner.

Without ROS, so that machines with and without launch start the same nodes in the same way.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError

from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.node_settings import DetectorNodeSettings, ImageSourceSettings, RecorderSettings
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.geometry.simulated_cell import SIMULATED_GEOMETRY
from sticker_uq.io.files import atomic_write
from sticker_uq.io.parameter_files import is_shared, read_sections, refuse_unknown
from sticker_uq.io.setting_fields import Frozen, words
from sticker_uq.io.share import LAB, PACKAGE, share_folder
from sticker_uq.scene import InvalidInput

SUPERVISOR = "supervisor"
PARTS = ("model", "weights", "policy", "dropout_rate", "passes")
"""Options that a bundle takes the place of."""
NODE_SETTINGS: dict[str, type[BaseModel]] = {
    "detector": DetectorNodeSettings,
    SUPERVISOR: SupervisorNodeSettings,
    "image_source": ImageSourceSettings,
    "recorder": RecorderSettings,
}
NODES = (*NODE_SETTINGS, "console", "cell_sim")
"""Names of the nodes of a cell. What console and simulation accept is known above this package."""
LIFECYCLE_NODES = ("detector", SUPERVISOR)
IMAGE_SOURCE = "image_source"


class CellOptions(Frozen):
    """An empty string or ``None`` keeps the value of the parameter file or the default."""

    camera_topic: str = "image"
    """Topic of the camera's images (raw, or its /compressed variant)"""
    more_camera_topics: str = ""
    """Image topics of further cameras, comma-separated, which the detector serves round-robin (left/image: scenes on left/scene);
    the supervisor uses camera_topic only"""
    source: str = ""
    """What plays as the camera on camera_topic, over and over: a recording, folder, picture, video, or camera device (/dev/video0
    or 0); empty: a real camera publishes there"""
    source_rate: float | None = Field(None, gt=0.0, le=240.0)
    """Rate of its images, Hz; empty: as in params_file"""
    image_transport: Literal["", "raw", "compressed"] = ""
    """Image transport, raw or compressed; empty: as in params_file"""
    bundle: str = ""
    """Folder of `sticker-uq bundle create`: weights, novelty network, panel, policy and the parameters that belong to them; takes
    the place of model, weights, policy, dropout_rate and passes"""
    model: str = Field("", description="torchvision name of the detector; empty: as in params_file")
    weights: str = Field("", description="Safetensors file; empty: the packaged weights of the model")
    policy: str = Field("", description="Policy YAML of the supervisor; empty: config/limits.yaml")
    allow_uncalibrated: bool = False
    """Let the arm move on a policy without a guarantee, as the default one is; the simulated arm always may"""
    dropout_rate: float | None = Field(None, ge=0.0, le=0.9)
    """Probability of a dropped activation; empty: as in params_file"""
    passes: int | None = Field(None, ge=1, le=200)
    """Stochastic passes T per image; empty: as in params_file"""
    device: str = Field("", description="Torch device: auto, cpu or cuda[:N]; empty: as in params_file")
    sim: bool = False
    """Start the simulated camera, arm and laptops instead of using real ones"""
    sim_person: Literal["none", "ground_truth"] = "none"
    """Who answers interventions in the simulation: none (a real operator) or ground_truth"""
    sim_seed: int | None = Field(None, ge=0)
    """Seed of the simulated laptops; empty: as in params_file"""
    sim_laptops: int | None = Field(None, ge=0)
    """Number of simulated laptops, 0: unlimited; empty: as in params_file"""
    sim_hard: bool | None = None
    """Whether the simulated laptops are hard (prints, residue, foreign objects, ...); empty: as in params_file"""
    console: bool = Field(False, description="Start the operator's web page")
    console_port: int | None = Field(None, ge=0, le=65535)
    """Port of the page; empty: as in params_file"""
    record: str = ""
    """Folder for a new mcap recording of the cell's topics; empty: no recording"""
    audit: str = Field("", description="Folder of the supervisor's audit log; empty: as in params_file")
    namespace: str = Field("", description="ROS namespace of every node")
    params_file: str = Field("", description="ROS parameter file; empty: the packaged config/cell.yaml")
    log_level: Literal["debug", "info", "warn", "error", "fatal"] = "info"
    """Log level of every node"""
    use_sim_time: bool = Field(False, description="Use the time on /clock, as with ros2 bag play --clock")
    respawn: bool = False
    """Restart a node when its process dies; the gate is closed after a restart"""

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> CellOptions:
        values = {k: v for k, v in texts.items() if v != "" or cls.model_fields[k].annotation is str}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(p) for p in first["loc"])
            raise InvalidInput(f"argument {name}={texts.get(name)!r}: {words(first, cls)}") from None


@dataclass(frozen=True)
class ProcessSpec:
    """One process: an executable of ``package``, its node name, parameters beyond the file's, and topic remappings.

    ``rights``: the name of its SROS2 enclave; empty: that of the node.
    """

    executable: str
    name: str
    namespace: str
    params_file: Path
    parameters: dict[str, Any] = field(default_factory=dict)
    remappings: tuple[tuple[str, str], ...] = ()
    log_level: str = "info"
    respawn: bool = False
    rights: str = ""
    package: str = PACKAGE

    def log_arguments(self) -> list[str]:
        logger = ".".join(part for part in [*self.namespace.split("/"), self.name] if part)
        levels = [f"{name}:={self.log_level}" for name in (logger, PACKAGE)]
        return [argument for level in levels for argument in ("--log-level", level)]

    @property
    def enclave(self) -> str:
        return f"{absolute_namespace(self.namespace).rstrip('/')}/{self.rights or self.name}"

    def ros_arguments(self, own_parameters: Path | None) -> list[str]:
        """``own_parameters`` is a file holding :attr:`parameters`."""
        arguments = ["--ros-args", "-r", f"__node:={self.name}", "--enclave", self.enclave]
        arguments += self.log_arguments()
        if self.namespace:
            arguments += ["-r", f"__ns:={absolute_namespace(self.namespace)}"]
        for source, target in self.remappings:
            arguments += ["-r", f"{source}:={target}"]
        arguments += ["--params-file", str(self.params_file)]
        if own_parameters is not None:
            arguments += ["--params-file", str(own_parameters)]
        return arguments

    def command(self, own_parameters: Path | None) -> list[str]:
        command = [sys.executable, "-m", f"{self.package}.nodes", self.executable]
        return command + self.ros_arguments(own_parameters)

    def write_parameters(self, folder: Path) -> Path:
        path = folder / f"{self.name}.yaml"
        with atomic_write(path, "w") as file:
            yaml.safe_dump({"/**": {"ros__parameters": self.parameters}}, file)
        return path


def check_parameter_file(path: Path, own: Collection[str] = ()) -> None:
    """Raise InvalidInput for a section that is for no node of the cell, and for a parameter in a section for all nodes that none
    of them knows; ``own``: parameters of the node that asks.
    """
    known = {*own, *(name for model in NODE_SETTINGS.values() for name in model.model_fields)}
    for pattern, values in read_sections(path):
        last = pattern.rpartition("/")[2]
        if is_shared(pattern):
            # those of the others, simulation and page, are known to their nodes only
            resembling = [name for name in values if difflib.get_close_matches(name, known, 1, 0.8)]
            refuse_unknown(resembling, sorted(known), path)
        elif last not in NODES:
            nearest = difflib.get_close_matches(last, NODES, 1)
            raise InvalidInput(
                f"parameter file {path}: {pattern} is for no node of the cell; "
                f"{f'did you mean /**/{nearest[0]}? ' if nearest else ''}"
                f"These would match: {', '.join(f'/**/{name}' for name in NODES)}, /**; other nodes need a file of their own"
            )


def absolute_namespace(namespace: str) -> str:
    return "/" + namespace.strip("/")


def existing_file(text: str, what: str) -> Path:
    """``text`` as the path of an existing file; raises :class:`InvalidInput`, which calls it ``what``, otherwise."""
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        raise InvalidInput(f"{what} {text!r}: no such file")
    return path


def cell_processes(options: CellOptions) -> list[ProcessSpec]:
    """In start order. Raises :class:`InvalidInput` when a named file does not exist, or the bundle is not whole."""
    audit = str(Path(options.audit).expanduser().resolve()) if options.audit else ""
    bundle = _bundle(options)
    supervision = _given_values(policy=_file(options.policy, "policy"), audit_folder=audit)
    if bundle is not None:
        supervision |= bundle.supervisor_parameters()
    if options.allow_uncalibrated or options.sim:
        supervision["allow_uncalibrated"] = True
    if options.sim:
        supervision |= SIMULATED_GEOMETRY | {"hold_unknown_start": False}
    beside = _camera_info_remapping(options.camera_topic)
    processes = [detector_process(options, bundle), _process(options, SUPERVISOR, supervision, beside)]
    if options.console:
        page = _given_values(port=options.console_port, image_transport=options.image_transport)
        processes.append(_process(options, "console", page, _image_remappings(options.camera_topic)))
    if options.record:
        recording = _given_values(
            bag=str(Path(options.record).expanduser().resolve()),
            image_transport=options.image_transport,
            more_image_topics=options.more_camera_topics,
            number_if_exists=options.respawn or None,
        )
        remappings = (*_image_remappings(options.camera_topic), *beside)
        processes.append(_process(options, "recorder", recording, remappings))
    if options.sim:
        values = {name: getattr(options, f"sim_{name}") for name in ("person", "seed", "laptops", "hard")}
        simulation = _given_values(**values)
        remappings = (*_image_remappings(options.camera_topic), *beside)
        processes.append(replace(_process(options, "cell_sim", simulation, remappings), package=LAB))
    return processes + _source_processes(options)


def detector_process(options: CellOptions, bundle: Bundle | None = None) -> ProcessSpec:
    """``bundle``: that of ``options``, where it is loaded already."""
    parameters = _given_values(
        model=options.model,
        weights=_file(options.weights, "weights"),
        dropout_rate=options.dropout_rate,
        passes=options.passes,
        device=options.device,
        image_transport=options.image_transport,
        more_image_topics=options.more_camera_topics,
    )
    if bundle := bundle or _bundle(options):
        parameters |= bundle.detector_parameters()
    return _process(options, "detector", parameters, _image_remappings(options.camera_topic))


def _source_processes(options: CellOptions) -> list[ProcessSpec]:
    """The node that plays ``source`` as the camera, in the place and with the rights of one; none without ``source``."""
    if not options.source:
        if options.source_rate is not None:
            raise InvalidInput("source_rate without source: expected a recording, folder or video, too")
        return []
    if options.sim:
        raise InvalidInput("source and sim: expected one of them; the simulation has a camera of its own")
    # compresses, or sends raw images, only while somebody subscribes to them
    played = _given_values(
        source=_existing_path(options.source),
        loop=True,
        transport="both",
        rate=options.source_rate,
        autostart=True,
    )
    remappings = (*_image_remappings(options.camera_topic), *_camera_info_remapping(options.camera_topic))
    return [replace(_process(options, IMAGE_SOURCE, played, remappings), rights="camera")]


def _existing_path(text: str) -> str:
    """``text``, a path made absolute; raises :class:`InvalidInput` when there is nothing at it."""
    if text.isdigit() or text.startswith("/dev/"):
        return text
    path = Path(text).expanduser().resolve()
    if not path.exists():
        raise InvalidInput(
            f"source {text!r}: no such recording, folder, picture or video, nor a camera device"
        )
    return str(path)


def _bundle(options: CellOptions) -> Bundle | None:
    """The bundle that ``options`` name; raises :class:`InvalidInput` when they also name a part of one, or it is not whole."""
    if not options.bundle:
        return None
    beside = [name for name in PARTS if getattr(options, name) not in ("", None)]
    if beside:
        raise InvalidInput(
            f"bundle and {beside[0]}: expected one of them; a bundle has its own, `sticker-uq bundle create` makes another"
        )
    return Bundle.load(options.bundle)


def _process(
    options: CellOptions, name: str, parameters: dict[str, Any], remappings: tuple[tuple[str, str], ...] = ()
) -> ProcessSpec:
    if name in LIFECYCLE_NODES:
        parameters = {"autostart": True, **parameters}
    parameters = {"use_sim_time": options.use_sim_time, **parameters}
    file = _params_file(options)
    return ProcessSpec(
        name, name, options.namespace, file, parameters, remappings, options.log_level, options.respawn
    )


def _params_file(options: CellOptions) -> Path:
    if options.params_file:
        file = existing_file(options.params_file, "params_file")
        check_parameter_file(file)
        return file
    return share_folder() / "config" / "cell.yaml"


def _image_remappings(camera_topic: str) -> tuple[tuple[str, str], ...]:
    if camera_topic == "image":
        return ()
    return (("image", camera_topic), ("image/compressed", f"{camera_topic}/compressed"))


def _camera_info_remapping(camera_topic: str) -> tuple[tuple[str, str], ...]:
    """Remaps camera_info to the namespace of the image topic, as image_transport expects it."""
    folder, slash, _ = camera_topic.rpartition("/")
    return (("camera_info", f"{folder}/camera_info"),) if slash else ()


def _given_values(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _file(text: str, what: str) -> str:
    return str(existing_file(text, what)) if text else ""
