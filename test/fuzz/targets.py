# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: every reader of what others made, each with examples and with what it does to an input.

A target returns or raises :class:`sticker_uq.scene.InvalidInput`. Anything else is a finding, and so is what takes longer or
more memory than `python -m test.fuzz` allows. What was found before lies in `seeds/TARGET/` and is tried first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.testclient import TestClient
from typer.testing import CliRunner

from sticker_uq.cell.bundle import MANIFEST as BUNDLE_MANIFEST
from sticker_uq.cell.bundle import Bundle
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.cli import review_app
from sticker_uq.cli.audit import app as audit_app
from sticker_uq.cli.bundle import app as bundle_app
from sticker_uq.cli.options import combine
from sticker_uq.console.access import Access, Addresses, Session
from sticker_uq.console.app import PersonsAnswer, PersonsCommand, make_app
from sticker_uq.console.guard import MOST_BODY
from sticker_uq.console.state import ConsoleState
from sticker_uq.detection.weights import load_into
from sticker_uq.evaluation.metrics.probability_vectors import read_vectors
from sticker_uq.evaluation.replay.recording import read_recording
from sticker_uq.gate import GateSettings, Phase, Policy
from sticker_uq.io.annotator_votes import sticker_fractions
from sticker_uq.io.bags import Bag
from sticker_uq.io.coco import ANNOTATIONS, read_annotations, read_coco, read_picture
from sticker_uq.io.images import decode_image, read_image_file
from sticker_uq.io.labelled_images import recorded_workpieces
from sticker_uq.io.messages import decision_from_msg, image_check_from_msg, reason_from_msg, scene_from_msg
from sticker_uq.io.parameter_files import read_parameters
from sticker_uq.io.reading import parse_json
from sticker_uq.io.sources import open_source
from sticker_uq.lab.datasets.from_audit import answered_questions
from sticker_uq.lab.datasets.importing.classes import class_mapping, complete_mapping, labels_by_name
from sticker_uq.lab.datasets.importing.formats import read_source
from sticker_uq.lab.datasets.importing.importing import grouped, upright
from sticker_uq.lab.datasets.manifest import MANIFEST
from sticker_uq.lab.datasets.prompts import PromptTemplate
from sticker_uq.lab.datasets.reviewing import REVIEW, Review
from sticker_uq.lab.robustness.spec import Specification
from sticker_uq.monitors.files import load_monitor, save_monitor
from sticker_uq.monitors.registry import monitor_named
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import settings_of_file
from sticker_uq.scene import InvalidInput, SceneAssessment
from test.fuzz import examples
from test.fuzz.mutation import as_json, as_yaml, changed_bytes, changed_documents
from test.helpers.browser import FakeCell
from test.helpers.gate import K, running

SEEDS = Path(__file__).parent / "seeds"
_MONITOR = "max_softmax"
_POINTS = [[0.0, 0.1], [0.5, 0.5], [1.0, 0.9]]


@dataclass(frozen=True)
class Target:
    """A reader of what others made.

    ``run`` reads one input, in a folder of its own that is empty before; ``seeds`` are inputs that work; ``documents`` are
    some that ``written`` makes bytes of. ``share`` of the examples of a short run: less for what takes long.
    ``raw``: whether it gets bytes from outside; otherwise they stand for a value only.
    """

    run: Callable[[bytes, Path], object]
    seeds: Callable[[], list[bytes]] = list
    documents: Callable[[], list[Any]] = list
    written: Callable[[Any], bytes] = as_json
    share: float = 1.0
    raw: bool = True

    def inputs(self) -> st.SearchStrategy[bytes]:
        """Inputs that resemble those that work."""
        documents = self.documents()
        seeds = [*self.seeds(), *map(self.written, documents)]
        kinds = [changed_bytes(seeds)] if self.raw else []
        if documents:
            kinds += [changed_documents(documents, self.written)] * 3  # they get further than bytes
        return st.one_of(kinds)


def tried(target: Target, data: bytes, folder: Path) -> bool:
    """Whether ``target`` takes ``data``, in ``folder``, which is emptied before. Anything but a refusal propagates."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        target.run(data, folder)
    except InvalidInput as refusal:
        str(refusal).encode()  # it must be possible to print it
        return False
    return True


def kept(name: str) -> list[Path]:
    """The inputs in the repository that the target ``name`` once failed with."""
    return sorted((SEEDS / name).glob("*.bin"))


def _written(data: bytes, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _image_file(data: bytes, folder: Path) -> None:
    picture = read_image_file(_written(data, folder / "a.jpg"))
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3


def _image_message(data: bytes, folder: Path) -> None:
    found = examples.coerced("sensor_msgs/msg/Image", parse_json(data, "input"))
    if sum(found["data"]) >= 0:
        pixels = np.array(found["data"], np.uint8)
        numbers = (found["width"], found["height"], found["step"])
        picture = decode_image(found["encoding"], *numbers, bool(found["is_bigendian"]), pixels)
        assert picture.shape == (found["height"], found["width"], 3)


def _image_documents() -> list[Any]:
    layouts = (("bgr8", 6, 12), ("mono16", 4, 8), ("bayer_rggb8", 2, 4), ("yuv422", 4, 8))
    return [
        {"height": 2, "width": 2, "encoding": encoding, "step": step, "is_bigendian": 1, "data": [7] * size}
        for encoding, step, size in layouts
    ]


def _recording(data: bytes, folder: Path) -> None:
    suffix = ".db3" if data.startswith(b"SQL") else ".mcap"
    path = _written(data, folder / f"bag{suffix}")
    bag = Bag(path)
    for topic in bag.topics:
        with contextlib.suppress(InvalidInput):
            for item in bag.messages(topic):
                assert (item.message is None) == bool(item.error)
    for read in (open_source, recorded_workpieces):
        with contextlib.suppress(InvalidInput):
            list(read(path))
    read_recording(bag)


def _metadata(data: bytes, folder: Path) -> None:
    for number, recording in enumerate(_recordings()):
        suffix = ".db3" if recording.startswith(b"SQL") else ".mcap"
        _written(recording, folder / f"bag_{number}{suffix}")
    _written(data, folder / "metadata.yaml")
    bag = Bag(folder)
    for item in bag.messages("/image"):
        assert (item.message is None) == bool(item.error)


def _metadata_documents() -> list[Any]:
    topic = {
        "topic_metadata": {
            "name": "/image", "type": "sensor_msgs/msg/Image", "serialization_format": "cdr", "offered_qos_profiles": [],
            "type_description_hash": "",
        },
        "message_count": 1,
    }  # fmt: skip
    part = {"path": "bag_0.mcap", "starting_time": {"nanoseconds_since_epoch": 0}, "message_count": 1}
    information = {
        "version": 9, "storage_identifier": "mcap", "relative_file_paths": ["bag_0.mcap"],
        "duration": {"nanoseconds": 1}, "starting_time": {"nanoseconds_since_epoch": 0}, "message_count": 1,
        "topics_with_message_count": [topic], "compression_format": "", "compression_mode": "",
        "files": [part | {"duration": {"nanoseconds": 1}}], "custom_data": {}, "ros_distro": "jazzy",
    }  # fmt: skip
    return [{"rosbag2_bagfile_information": information}]


@cache
def _recordings() -> list[bytes]:
    return examples.recordings()


def _message(data: bytes, folder: Path) -> None:
    told = parse_json(data, "input")
    if not isinstance(told, dict):
        raise InvalidInput("no message")
    scene = scene_from_msg(_object(told.get("scene")))
    readers: list[Callable[[Any], object]] = [image_check_from_msg, reason_from_msg]
    readers.append(lambda message: decision_from_msg(message, scene))
    for name, read in zip(("check", "reason", "decision"), readers, strict=True):
        with contextlib.suppress(InvalidInput):
            read(_object(told.get(name)))


def _object(value: Any) -> Any:
    """``value`` with the entries of every dict as attributes."""
    if isinstance(value, dict):
        found = SimpleNamespace()
        vars(found).update({str(name): _object(inner) for name, inner in value.items()})
        return found
    return [_object(inner) for inner in value] if isinstance(value, list) else value


def _message_documents() -> list[Any]:
    check = examples.document_of(f"{examples.PACKAGE}ImageCheck")
    decision = examples.decision_document()
    reason = decision["reasons"][0]
    return [{"scene": examples.scene_document(), "check": check, "reason": reason, "decision": decision}]


def _gate(data: bytes, folder: Path) -> None:
    """A gate gets scenes that may claim anything; the witness checks what it does."""
    document = examples.coerced(f"{examples.PACKAGE}SceneAssessment", parse_json(data, "input"))
    scene = scene_from_msg(_object(document))
    for policy in (Policy(), _full_policy()):
        _assessed(scene, policy)


def _assessed(scene: SceneAssessment, policy: Policy) -> None:
    cell = running(policy=policy)
    for number in range(K):
        cell.wait(0.1)
        cell.assess(replace(scene, stamp_ns=cell.now, image_digest=f"{scene.image_digest}{number}"))
        assert cell.phase is not Phase.FAULT, cell.logged
        cell.tick()


@cache
def _full_policy() -> Policy:
    """A policy with every section that judges scenes."""
    sections = _policy_documents()[1]
    del sections["validity"]
    return Policy.model_validate_json(json.dumps(sections))


def _policy(data: bytes, folder: Path) -> None:
    policy = Policy.load(_written(data, folder / "policy.yaml"))
    assert len(policy.hash) == 64
    for changes in ({}, {"objects": []}):
        _assessed(scene_from_msg(_object(examples.scene_document(**changes))), policy)


def _policy_documents() -> list[Any]:
    packaged = yaml.safe_load((examples.ROOT / "config" / "policy.yaml").read_text())
    x, y = ([point[axis] for point in _POINTS] for axis in (0, 1))
    proof = {
        "level": 0.05, "confidence": 0.9, "method": "clopper_pearson", "images": 100, "events": 0, "bound": 0.03,
        "smallest_level": 0.02, "limit": 0.3,
    }  # fmt: skip
    return [
        packaged,
        {
            "calibration": {"logo": {"kind": "isotonic", "x": x, "y": y}, "sticker": {"kind": "temperature", "temperature": 1.5}},
            "risk": {
                "intercept": -3.0, "max_removal": 0.4,
                "terms": [{"signal": "shannon_entropy", "knots": x, "log_odds": y}],
            },
            "panel": {"combination": "any", "keep": False},
            "saliency": {"signal": "dil", "max_removal": 0.9, "max_clean": 0.9, "percentile": 95.0},
            "familiarity": {
                "usual": {name: {"low": 0.5, "middle": 1.0, "high": 2.0} for name in ("sharpness", "mean_level")},
                "max_distance": 2.0, "percentile": 99.0,
            },
            "guarantee": {"match_iou": 0.5, "wrongful_removal": proof, "missed_sticker": proof},
            "validity": {"model": "m", "camera": "camera", "image_size": [640, 480], "until": "2030-01-01"},
            "provenance": {
                "command": "calibrate", "created": "2026-01-01", "versions": {"torch": "2"},
                "data": [{"role": "fit", "source": "a", "images": 5, "fingerprint": "f"}],
            },
            "reference": {"signals": {"score": [0.5] * 20}},
        },
    ]  # fmt: skip


def _parameters(data: bytes, folder: Path) -> None:
    path = _written(data, folder / "cell.yaml")
    with contextlib.suppress(InvalidInput):
        settings_of_file(path, "detector", PerceptionSettings())
    combine(PerceptionSettings, read_parameters(path, "detector"), {}, path)
    combine(GateSettings, read_parameters(path, "supervisor"), {}, path, ("policy",))


def _parameter_documents() -> list[Any]:
    return [
        {"detector": {"ros__parameters": PerceptionSettings().model_dump()}},
        {"/**": {"supervisor": {"ros__parameters": GateSettings().model_dump(mode="json")}}},
        yaml.safe_load((examples.ROOT / "config" / "cell.yaml").read_text()),
    ]


def _specification(data: bytes, folder: Path) -> None:
    Specification.load(_written(data, folder / "spec.yaml"))


def _specification_documents() -> list[Any]:
    names = ("laptop_cell", "medical_diagnosis")
    folder = examples.ROOT / "sticker_uq" / "lab" / "robustness"
    return [yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in names]


def _prompts(data: bytes, folder: Path) -> None:
    PromptTemplate.load(_written(data, folder / "prompts.yaml")).draw(1)


def _prompt_documents() -> list[Any]:
    return [yaml.safe_load((examples.ROOT / "sticker_uq/lab/datasets/prompts.yaml").read_text())]


def _coco(data: bytes, folder: Path) -> None:
    for number in (1, 2):
        _written(examples.pictures()[2], folder / "images" / f"{number}.png")
    path = _written(data, folder / ANNOTATIONS)
    read_annotations(folder)
    items = read_coco(folder)
    sticker_fractions(folder, items)
    for item in items:
        assert path.parent in item.path.parents
        assert np.isfinite(item.boxes).all()
        read_picture(item)


def _categories(data: bytes, folder: Path) -> None:
    _written(data, folder / "categories.yaml")
    _coco(as_json(examples.coco()), folder)


def _weights(data: bytes, folder: Path) -> None:
    suffix = ".pth" if data.startswith(b"PK") else ".safetensors"
    load_into(examples.model(), examples.MODEL, _written(data, folder / f"weights{suffix}"))


def _monitor(data: bytes, folder: Path) -> None:
    save_monitor(monitor_named(_MONITOR), folder)
    _written(data, folder / f"{_MONITOR}.json")
    load_monitor(folder, _MONITOR)


def _monitor_documents() -> list[Any]:
    with TemporaryDirectory() as folder:
        return [json.loads(save_monitor(monitor_named(_MONITOR), Path(folder)).read_text())]


def _audit(data: bytes, folder: Path) -> None:
    if data.startswith(b"["):  # what another supervisor wrote: an unbroken chain of entries
        told = parse_json(data, "input")
        if not all(isinstance(one, dict) and isinstance(one.get("data"), dict) for one in told):
            raise InvalidInput("no entries")
        try:
            data = examples.chained([one | {"kind": str(one.get("kind"))} for one in told])
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"no log has such an entry: {error!r}") from None
    _written(data, folder / "audit-000001.jsonl")
    for command in ("show", "verify"):
        shown = CliRunner().invoke(audit_app, [command, str(folder)])
        if shown.exception is not None and not isinstance(shown.exception, SystemExit):
            raise shown.exception
        assert shown.output.replace("\n", "").isprintable(), ascii(shown.output)
    answered_questions(folder)


def _answer(data: bytes, folder: Path) -> None:
    try:
        told = json.loads(data)  # as the server does
        for model in (PersonsAnswer, PersonsCommand):
            with contextlib.suppress(ValidationError):
                said = model.model_validate(told)
                assert type(said).model_validate_json(said.model_dump_json().encode()) == said
    except (ValueError, RecursionError):
        raise InvalidInput("no JSON") from None


def _answer_documents() -> list[Any]:
    box = {"answer": "missed", "x1": 1.0, "y1": 2.0, "x2": 30.0, "y2": 40}
    return [
        {"request_id": "r1", "person": "Ada", "scene": "none", "answers": [box]},
        {"command": "hold", "person": "Ada"},
    ]


def _bundle(data: bytes, folder: Path) -> None:
    """The manifest of a bundle, whose other files are as they were made; the command shows it."""
    for name, content in _bundle_files().items():
        _written(content, folder / name)
    _written(data, folder / BUNDLE_MANIFEST)
    bundle = Bundle.load(folder)
    assert Policy.load(bundle.supervisor_parameters()["policy"]).hash == bundle.manifest.policy_hash
    assert set(bundle.supervisor_parameters()) <= set(SupervisorNodeSettings.model_fields)
    shown = CliRunner().invoke(bundle_app, ["show", str(folder)], catch_exceptions=False)
    assert shown.output.replace("\n", "").isprintable(), ascii(shown.output)


@cache
def _bundle_files() -> dict[str, bytes]:
    return {
        "policy.yaml": (examples.ROOT / "config" / "policy.yaml").read_bytes(),
        "weights.safetensors": b"weights",
        "panel/panel.json": b"{}",
    }


def _bundle_documents() -> list[Any]:
    policy = Policy.load(examples.ROOT / "config" / "policy.yaml")
    detector = PerceptionSettings().model_dump(exclude={"device", "threads", "weights", "panel"})
    manifest = {
        "format": 1, "created": "2026-01-31", "version": "1.0", "model": "m", "device": "cpu", "model_hash": "a" * 64,
        "settings_hash": "b" * 64, "panel_hash": "", "policy_hash": policy.hash, "guarantee": str(policy.guarantee or ""),
        "detector": {name: value for name, value in detector.items() if not name.startswith("escala")},
        "supervisor": {"consecutive_scenes": 4, "camera_pose": "0.4 0 1 1 0 0 0"},
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in _bundle_files().items()},
    }  # fmt: skip
    return [manifest]


def _request(data: bytes, folder: Path) -> None:
    """A request to the operator's page as the web server hands it on. What it may do is told by other means than the guard's."""
    told = parse_json(data, "input")
    if not isinstance(told, dict):
        raise InvalidInput("no request")
    headers = [(str(name).lower(), str(value)) for name, value in examples.pairs(told.get("headers"))]
    method, path, body = (str(told.get(name, "")) for name in ("method", "path", "body"))
    cell, access = FakeCell(), Access(token=_TOKEN)
    access._sessions[hashlib.sha256(_COOKIE.encode()).hexdigest()] = Session()
    app = make_app(ConsoleState(), cell, access, Addresses("127.0.0.1", _PORT), _COOKIE_NAME)
    status, said = asyncio.run(examples.answer_of(app, method, path, headers, body, _PORT))
    assert status < 500, (status, said)
    assert all(text not in said for text in (_TOKEN, "SPY")), said
    if not (cell.commands or cell.answers):
        return
    assert (method, path.partition("?")[0]) in (("POST", "/command"), ("POST", "/answer"))
    assert len(body.encode("utf-8", "replace")) <= MOST_BODY
    found = {name: [value for other, value in headers if other == name] for name, _ in headers}
    hosts = {f"{name}:{_PORT}" for name in ("localhost", "127.0.0.1", "[::1]")}
    assert found["host"][0].lower() in hosts
    assert found["origin"][0].lower() == f"http://{found['host'][0].lower()}"
    assert found["content-type"][0].lower().startswith("application/json")
    assert f"{_COOKIE_NAME}={_COOKIE}" in ";".join(found["cookie"])


_TOKEN, _COOKIE, _COOKIE_NAME, _PORT = "the token of this cell", "of-a-session", "sticker_uq_8780", 8780


def _request_documents() -> list[Any]:
    hosts = (f"localhost:{_PORT}", f"[::1]:{_PORT}")
    bodies = {
        "/command": {"command": "hold", "person": "SPY"},
        "/answer": {"request_id": "SPY", "person": "SPY", "scene": "clean", "answers": []},
        "/session": {"name": "SPY", "secret": "SPY"},
        "/sign_out": {},
    }
    return [
        {
            "method": "POST", "path": path, "body": json.dumps(body),
            "headers": [
                ["Host", host], ["Origin", f"http://{host}"], ["Content-Type", "application/json"],
                ["Cookie", f"a=b; {_COOKIE_NAME}={_COOKIE}"], ["Content-Length", str(len(json.dumps(body)))],
            ],
        }
        for host in hosts
        for path, body in bodies.items()
    ]  # fmt: skip


def _review_page(data: bytes, folder: Path) -> None:
    """What one browser says, and what the page then shows to another; the manifest and decisions may come from elsewhere too."""
    _written(examples.pictures()[2], folder / "images" / "a.png")
    told = data.split(b"\n---\n")
    for name, content in zip((MANIFEST, REVIEW), told[1:], strict=False):
        _written(content, folder / name)
    page = TestClient(review_app.make_app(Review(folder)), base_url="http://localhost")
    answers = [page.post("/decide", content=told[0], headers={"content-type": "application/json"})]
    answers += [page.get("/state"), page.get(f"/pictures/{told[0][:40].hex()}")]
    for answer in answers:
        assert answer.status_code < 500


def _review_bytes(value: Any) -> bytes:
    said, *files = value if isinstance(value, list) and value else [value]
    lines = [b"".join(as_json(line) + b"\n" for line in file) for file in files if isinstance(file, list)]
    return b"\n---\n".join((as_json(said), *lines))


def _review_documents() -> list[Any]:
    said = {"picture": "a.png", "verdict": "keep"}
    return [[said, [{"file": "images/a.png", "prompt": "a lid"}], [said]]]


def _vectors(data: bytes, folder: Path) -> None:
    read_vectors(_written(data, folder / ("a.npz" if data.startswith(b"PK") else "a.csv")))


def _vector_files() -> list[bytes]:
    stream = BytesIO()
    np.savez(
        stream,
        probabilities=np.array([[0.2, 0.8], [0.6, 0.4]]),
        labels=np.array([1, 0]),
        images=np.array([1, 1]),
    )
    return [b"image,p_logo,p_sticker,label\n1,0.2,0.8,sticker\n1,0.6,0.4,0\n", stream.getvalue()]


def _import_source(data: bytes, folder: Path) -> None:
    """Annotations of another tool, whatever format they claim to be."""
    (folder / "images").mkdir()
    _written(examples.pictures()[2], folder / "images" / "1.png")
    if data.startswith(b"names:"):
        names, _, lines = data.partition(b"\n---\n")
        _written(names, folder / "data.yaml")
        _written(lines, folder / "labels" / "1.txt")
    else:
        _written(data, folder / ("a.xml" if data.lstrip()[:1] == b"<" else "a.json"))
    _, pictures = read_source(folder)
    named = {one.name: "sticker" for picture in pictures for one in picture.objects}
    complete_mapping(pictures, class_mapping([], ["rest"]))
    found, _ = upright(pictures, folder, labels_by_name(named), repair=True)
    for one in grouped(found, 6).pictures:
        assert np.isfinite(one.labelled.boxes).all()


def _import_files() -> list[bytes]:
    size = "<size><width>16</width><height>12</height></size>"
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>6</xmax><ymax>7.5</ymax></bndbox>"
    image = '<image id="0" name="1.png" width="16" height="12">'
    shapes = (
        '<box label="s" xtl="1" ytl="2" xbr="5" ybr="6" rotation="30"/><polygon label="s" points="1,2;4,2;3,7"/>'
        '<ellipse label="s" cx="5" cy="5" rx="2" ry="1"/>'
    )
    voc = f"<annotation><filename>1.png</filename>{size}<object><name>s</name>{box}</object></annotation>"
    return [
        voc.encode(),
        f"<annotations>{image}{shapes}</image></annotations>".encode(),
        b"names: [s, t]\n---\n0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.5 0.1 0.5 0.5\n",
    ]


def _import_documents() -> list[Any]:
    value = {"x": 10, "y": 20.5, "width": 30, "height": 40, "rotation": 15, "rectanglelabels": ["s"]}
    points = {"points": [[10, 10], [40, 10], [40, 60]], "polygonlabels": ["s"]}
    size = {"original_width": 16, "original_height": 12, "image_rotation": 0}
    regions = [{"value": value, **size}, {"value": points, **size}]
    task = {"id": 1, "data": {"image": "/data/upload/1/1a2b3c4d-1.png"}, "annotations": [{"result": regions}]}
    document = examples.coco()
    document["images"] = document["images"][:1]
    document["annotations"] = document["annotations"][:1]
    return [[task], document]


TARGETS: dict[str, Target] = {
    "image": Target(_image_file, examples.pictures),
    "image_message": Target(_image_message, documents=_image_documents, raw=False),
    "recording": Target(_recording, _recordings, share=0.25),
    "recording_metadata": Target(_metadata, documents=_metadata_documents, written=as_yaml, share=0.25),
    "message": Target(_message, documents=_message_documents, raw=False),
    "gate": Target(_gate, documents=lambda: [examples.scene_document()], share=0.5, raw=False),
    "policy": Target(_policy, documents=_policy_documents, written=as_yaml, share=0.4),
    "parameters": Target(_parameters, documents=_parameter_documents, written=as_yaml, share=0.4),
    "specification": Target(_specification, documents=_specification_documents, written=as_yaml, share=0.1),
    "prompts": Target(_prompts, documents=_prompt_documents, written=as_yaml, share=0.2),
    "coco": Target(_coco, documents=lambda: [examples.coco()]),
    "categories": Target(_categories, documents=lambda: [{"crow": "ignore"}], written=as_yaml),
    "import": Target(_import_source, _import_files, _import_documents),
    "weights": Target(_weights, examples.weights),
    "monitor": Target(_monitor, documents=_monitor_documents),
    "audit": Target(
        _audit, lambda: [examples.chained(examples.audit_entries())], lambda: [examples.audit_entries()]
    ),
    "answer": Target(_answer, documents=_answer_documents),
    "request": Target(_request, documents=_request_documents, raw=False),
    "bundle": Target(_bundle, documents=_bundle_documents, written=as_yaml, share=0.4),
    "vectors": Target(_vectors, _vector_files),
    "review_page": Target(_review_page, documents=_review_documents, written=_review_bytes, share=0.3),
}
