# SPDX-License-Identifier: Apache-2.0
"""Files and messages that work, of which fuzzing makes others."""

from __future__ import annotations

import math
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
import torch
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from sticker_uq.detection.weights import CLASSES, save_weights
from sticker_uq.testing.scenes import HERE, START

ROOT = Path(__file__).parents[2]
PACKAGE = "sticker_uq_msgs/msg/"
MODEL = "ssdlite320_mobilenet_v3_large"
_BASE, _NAME, _ARRAY = 1, 2, 3  # kinds of fields in rosbags; the fourth is a sequence


@cache
def types() -> Typestore:
    """The types of ROS 2 and those of the cell, from their sources."""
    store, found = get_typestore(Stores.ROS2_JAZZY), {}
    for file in sorted((ROOT / "sticker_uq_msgs" / "msg").glob("*.msg")):
        found.update(get_types_from_msg(file.read_text(), f"{PACKAGE}{file.stem}"))
    store.register(found)
    return store


def pictures() -> list[bytes]:
    """A small picture in every format, and one with EXIF data."""
    pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 3), np.uint8)
    kinds = [
        (".jpg", []),
        (".jpg", [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
        (".png", []),
        (".bmp", []),
        (".webp", []),
    ]
    files = [cv2.imencode(suffix, pixels, options)[1].tobytes() for suffix, options in kinds]
    turned = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    files.append(files[0][:2] + b"\xff\xe1" + (len(turned) + 2).to_bytes(2, "big") + turned + files[0][2:])
    grey = cv2.imencode(".png", pixels[..., 0].astype(np.uint16) * 257)[1].tobytes()
    return [*files, grey]


def document_of(name: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """A message of the type ``name`` as a document: one entry in every sequence, zeros, and what is ``given``."""
    store = types()

    def value(kind: Any) -> Any:
        nodetype, inner = kind
        if nodetype == _BASE:
            plain = inner[0]
            return "" if plain == "string" else False if plain == "bool" else 0.0 if "float" in plain else 0
        if nodetype == _NAME:
            return document_of(inner)
        return [value(inner[0])] * (inner[1] or 1)

    return {field: value(kind) for field, kind in store.fielddefs[name][1]} | (given or {})


def scene_document(**given: Any) -> dict[str, Any]:
    """A scene with one sure sticker and all that a scene may have."""
    box = dict(zip(("x1", "y1", "x2", "y2"), HERE, strict=True))
    hull = {"x": [0.0, 1.0, 0.0], "y": [0.0, 0.0, 1.0]}
    metrics = dict.fromkeys(document_of(f"{PACKAGE}MetricValues"), 0.01)
    one = document_of(
        f"{PACKAGE}ObservedObject",
        {
            "label": 2, "box": box, "probabilities": [0.02, 0.02, 0.96], "detections": 20, "passes": 20, "detection_rate": 1.0,
            "metrics": metrics, "box_covariance": [1.0] * 16, "corner_hulls": [hull] * 4, "monitors": [],
        },
    )  # fmt: skip
    header = {"stamp": {"sec": START // 10**9, "nanosec": 0}, "frame_id": "camera"}
    region = {"box": box, "objectness": 0.1, "share": 0.1}
    uncertainty = {"objects": 1, "unstable": 0, "metrics": metrics}
    localization = document_of(f"{PACKAGE}DistinctiveLocalization", {"valid": True, "unexplained": [region]})
    exposure = document_of(f"{PACKAGE}Exposure", {"valid": True, "mean_level": 120.0})
    return document_of(
        f"{PACKAGE}SceneAssessment",
        {
            "header": header, "status": 1, "image_width": 640, "image_height": 480, "image_digest": "d", "model": MODEL,
            "model_hash": "m" * 64, "settings_hash": "s" * 64, "passes": 20, "dropout_rate": 0.2, "objects": [one],
            "unstable": [], "uncertainty": uncertainty, "dil": localization, "exposure": exposure,
            "timings": [{"stage": "passes", "ms": 5.0}], **given,
        },
    )  # fmt: skip


def decision_document() -> dict[str, Any]:
    """A decision about :func:`scene_document`."""
    scene = scene_document()
    box = scene["objects"][0]["box"]
    reason = document_of(f"{PACKAGE}Reason", {"code": "shannon_entropy", "box": box})
    verdict = document_of(f"{PACKAGE}Verdict", {"verdict": 1, "reasons": [reason], "box": box})
    drawn = verdict | {"object_id": 7, "by_operator": True}
    return document_of(
        f"{PACKAGE}SceneDecision",
        {"header": scene["header"], "decision_id": "d1", "verdicts": [verdict, drawn], "reasons": [reason]},
    )


def coerced(name: str, document: Any) -> dict[str, Any]:
    """``document`` with the fields and types of the message ``name``: what cannot be had in such a message is zero or cut."""
    store = types()

    def value(kind: Any, found: Any) -> Any:
        nodetype, inner = kind
        if nodetype == _NAME:
            return coerced(inner, found)
        if nodetype != _BASE:
            items = [value(inner[0], item) for item in found] if isinstance(found, list) else []
            return (items + [value(inner[0], None)] * inner[1])[: inner[1]] if nodetype == _ARRAY else items
        plain = inner[0]
        if plain == "string":
            return (found if isinstance(found, str) else "").encode("utf-8", "replace").decode()
        if plain == "bool":
            return found is True
        number = found if isinstance(found, int | float) else 0
        if "float" in plain:
            number = (math.inf if number > 0 else -math.inf) if abs(number) > 1e308 else float(number)
            with np.errstate(over="ignore"):
                return float(np.float32(number)) if plain == "float32" else number
        span = np.iinfo(plain if plain not in ("byte", "char", "octet") else "uint8")
        whole = 0 if isinstance(number, float) and not math.isfinite(number) else int(number)
        return min(max(whole, int(span.min)), int(span.max))

    found = document if isinstance(document, dict) else {}
    return {field: value(kind, found.get(field)) for field, kind in store.fielddefs[name][1]}


def message(name: str, document: dict[str, Any]) -> Any:
    """``document``, coerced, as a message of rosbags."""
    store = types()

    def value(kind: Any, found: Any) -> Any:
        nodetype, inner = kind
        if nodetype == _NAME:
            return message(inner, found)
        if nodetype == _BASE:
            return found
        (one, deeper), _ = inner
        if one == _BASE and deeper[0] != "string":
            return np.array(found, np.uint8 if deeper[0] in ("byte", "char", "octet") else deeper[0])
        return [value(inner[0], item) for item in found]

    whole = coerced(name, document)
    return store.types[name](**{field: value(kind, whole[field]) for field, kind in store.fielddefs[name][1]})


def recordings() -> list[bytes]:
    """The files of recordings of a cell: mcap, compressed and not, and sqlite3."""
    stamp = {"sec": START // 10**9, "nanosec": 0}
    header = {"stamp": stamp, "frame_id": "camera"}
    image = {
        "header": header,
        "height": 2,
        "width": 2,
        "encoding": "bgr8",
        "step": 6,
        "data": list(range(12)),
    }
    told = (
        ("/image", "sensor_msgs/msg/Image", image),
        ("/workpiece", f"{PACKAGE}Workpiece", {"header": header, "id": "laptop-1"}),
        ("/scene", f"{PACKAGE}SceneAssessment", scene_document()),
        ("/decision", f"{PACKAGE}SceneDecision", decision_document()),
        ("/gate", f"{PACKAGE}GateState", {"header": header, "state": 4, "decision_id": "d1"}),
        (
            "/request",
            f"{PACKAGE}InterventionRequest",
            {"header": header, "request_id": "r1", "decision_id": "d1"},
        ),
        ("/answer", f"{PACKAGE}InterventionAnswer", {"header": header, "request_id": "r1", "person": "Ada"}),
        ("/workpiece_done", f"{PACKAGE}WorkpieceDone", {"header": header, "workpiece_id": "laptop-1"}),
    )
    found = []
    for storage, compression in (
        (StoragePlugin.MCAP, None),
        (StoragePlugin.MCAP, CompressionMode.STORAGE),
        (StoragePlugin.SQLITE3, None),
    ):
        with TemporaryDirectory() as folder:
            writer = Writer(Path(folder) / "bag", version=9, storage_plugin=storage)
            if compression is not None:
                writer.set_compression(compression, CompressionFormat.ZSTD)
            with writer:
                for topic, kind, document in told:
                    connection = writer.add_connection(topic, kind, typestore=types())
                    writer.write(connection, START, types().serialize_cdr(message(kind, document), kind))
            (file,) = (f for f in (Path(folder) / "bag").iterdir() if f.suffix in (".mcap", ".db3"))
            found.append(file.read_bytes())
    return found


def model() -> torch.nn.Module:
    """A model of few numbers, for files of weights."""
    made = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(0.5)
    return made


def weights() -> list[bytes]:
    """Files of weights in both formats."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        save_weights(model(), file, {"model": MODEL})
        found = [file.read_bytes()]
    for content in ({"model": model().state_dict(), "classes": CLASSES}, model().state_dict()):
        stream = BytesIO()
        torch.save(content, stream)
        found.append(stream.getvalue())
    return found


def coco() -> dict[str, Any]:
    """The annotations of two pictures."""
    images = [{"id": n, "file_name": f"images/{n}.png", "width": 16, "height": 12} for n in (1, 2)]
    box = {"category_id": 1, "bbox": [1, 2.5, 3, 4], "area": 12, "iscrowd": 0}
    return {
        "info": {"description": "two"},
        "categories": [{"id": 1, "name": "sticker"}, {"id": 2, "name": "Logo"}, {"id": 3, "name": "crow"}],
        "images": images,
        "annotations": [{"id": n, "image_id": n, **box} for n in (1, 2)],
    }


def pairs(value: Any) -> list[tuple[Any, Any]]:
    """The pairs in ``value``, without whatever else is in it."""
    items = value if isinstance(value, list) else []
    return [(item[0], item[1]) for item in items if isinstance(item, list) and len(item) == 2]


async def answer_of(
    app: Any, method: str, path: str, headers: list[tuple[str, str]], body: str, port: int
) -> tuple[int, str]:
    """Status and text of the answer of an ASGI ``app`` to a request, as a web server hands it on: a header is bytes."""
    sent: list[dict[str, Any]] = []
    plain, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": plain,
        "raw_path": plain.encode("utf-8", "replace"), "query_string": query.encode("utf-8", "replace"), "root_path": "",
        "headers": [(name.encode("utf-8", "replace"), value.encode("utf-8", "replace")) for name, value in headers],
        "client": ("127.0.0.1", 50_000), "server": ("127.0.0.1", port),
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body.encode("utf-8", "replace"), "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    said = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], said.decode("utf-8", "replace")
