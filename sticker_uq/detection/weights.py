# SPDX-License-Identifier: Apache-2.0
"""Weights files: safetensors that say which model they belong to, and .pth of others; checked before they are used.

A file holds the tensors and one JSON text under the metadata key ``sticker_uq`` with at least ``format``
(version), ``model``, ``classes`` and ``checksum``. The checksum is taken over the float32 values, so a file
in half precision and the same weights written in full precision have the same one.
"""

import hashlib
import json
import os
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sticker_uq.detection.names import check_name
from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import check_regular, parse_json, show_value
from sticker_uq.messages import printable
from sticker_uq.scene import CLASS_COUNT, InvalidInput, ObjectClass

FORMAT = 1
MOST_WEIGHTS = 4 << 30
"""Bytes of a weights file; the largest of the built-in models has 170 MB."""
CLASSES = [c.name.lower() for c in ObjectClass]
_KEY = "sticker_uq"
WRAPPINGS = ("model", "state_dict", "model_state_dict")
"""Keys under which training programs keep the state dict."""
_PREFIXES = ("module.", "model.", "_orig_mod.")  # of DistributedDataParallel, Lightning, torch.compile
_OTHERS = {
    b"version https://git-lfs": "a pointer of Git LFS: fetch the file itself with `git lfs pull`",
    b"<": "a page of a web site: download the file itself",
    b"\x89HDF": "of Keras (HDF5): expected a model of PyTorch",
    b"GGUF": "of llama.cpp (GGUF): expected a model of PyTorch",
}
_KEEP = "If you trust it, keep its tensors alone, with its classes in their order:"
_CONVERT = (
    "python -c \"import torch; c = torch.load({file!r}, map_location='cpu', weights_only=False); "
    "m = next((c[k] for k in ('model', 'state_dict', 'model_state_dict') if k in c), c) if isinstance(c, dict) else c; "
    "k = c['classes'] if isinstance(c, dict) and 'classes' in c else {classes}; "
    "torch.save({{'model': m if isinstance(m, dict) else m.state_dict(), 'classes': k}}, 'plain.pth')\""
)
_CONVERT_SCRIPT = (
    "python -c \"import torch; m = torch.jit.load({file!r}, map_location='cpu'); "
    "torch.save({{'model': m.state_dict(), 'classes': {classes}}}, 'plain.pth')\""
)
COUNTERS = "num_batches_tracked"  # of batch normalisation in training; no part of what a model computes

_FILLING = ("kaiming_uniform_", "normal_", "uniform_")
"""What torch and torchvision fill first weights with."""

State = dict[str, Tensor]
PathLike = str | os.PathLike[str]


class Unfilled(TorchFunctionMode):
    """Models that are built inside have whatever was in memory as weights, for a file to fill them, and are shown no picture.

    torch's device ``meta`` is for that too, but loads torch's compiler, which takes longer than all the rest.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in _FILLING:
            return None
        if func is torch.conv2d:
            args = (args[0][:0], *args[1:])
        return func(*args, **(kwargs or {}))


def packaged_weights(name: str) -> Path | None:
    """The weights file of model ``name`` that came with the package, or None when there is none."""
    path = Path(__file__).parent / "weights" / f"{name}.safetensors"
    return path if path.is_file() else None


def close_up_weights(model: str, weights: str = "", used: str = "") -> Path | None:
    """The file of weights for close-ups, ``NAME_close_ups.safetensors`` beside ``NAME.safetensors``, which is ``weights`` or the
    packaged one of ``model``; None where there is none, or where the checksum of the weights ``used`` is not that of the
    packaged ones.
    """
    path = beside_weights(model, weights, "close_ups", used)
    return path if path and path.is_file() else None


def beside_weights(model: str, weights: str, name: str, used: str = "") -> Path | None:
    """Where ``NAME_name.safetensors`` is or would be beside ``NAME.safetensors``, as :func:`close_up_weights`."""
    file = Path(weights) if weights else packaged_weights(model)
    if file and not weights and used and read_metadata(file)["checksum"] != used:
        return None
    return file and file.with_name(f"{file.stem}_{name}.safetensors")


def checksum(state: Mapping[str, Tensor]) -> str:
    """SHA-256 (hex) over names, shapes and float32 values of ``state``, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().to("cpu", torch.float32).contiguous()
        digest.update(f"{name}{list(tensor.shape)}".encode())
        digest.update(tensor.numpy().astype("<f4", copy=False).data)
    return digest.hexdigest()


def save_weights(model: nn.Module, path: PathLike, metadata: Mapping[str, Any], *, half: bool = False) -> str:
    """Write the weights of ``model`` to the safetensors file ``path`` and return their checksum.

    ``metadata`` must name the ``model`` (of the registry) and may hold whatever JSON can; ``format``, ``classes`` and
    ``checksum`` are added. ``half`` stores convolution and linear weights in half precision; vectors (biases, normalisation) stay
    in full precision. The file is written completely or not at all. Raises InvalidInput for an unknown model name and for weights
    that are not finite or too large for half precision, OSError when the disk fails.
    """
    check_name(metadata.get("model", ""))
    stored = {}
    for name, tensor in model.state_dict().items():
        if not name.endswith(COUNTERS):
            dtype = torch.float16 if half and tensor.ndim > 1 else torch.float32
            stored[name] = tensor.detach().to("cpu", dtype).contiguous().clone()
    _check_finite(stored, path)
    digest = checksum(stored)
    text = json.dumps({**metadata, "format": FORMAT, "classes": CLASSES, "checksum": digest}, sort_keys=True)
    with atomic_write(path) as stream:
        stream.write(save(stored, {"format": "pt", _KEY: text}))
    return digest


def load_weights(path: PathLike) -> tuple[State, dict[str, Any]]:
    """The float32 tensors of a weights file and its metadata.

    Reads safetensors written by :func:`save_weights`, and files of ``torch.save`` with a state dict (plain, or under ``model``,
    ``state_dict`` or ``model_state_dict``, names with or without a common ``module.`` or ``model.``) through torch's restricted
    unpickler; the content decides, not the suffix. Metadata of the latter is the computed ``checksum``, over ``network`` too,
    and, where they stand beside the state dict, its ``classes`` and ``network``. Raises InvalidInput when the file is missing,
    broken or truncated, is of another format version, does not match its checksum, or holds values that are not finite or fill
    more memory than the file has bytes.
    """
    file = Path(path)
    if check_regular(file, f"weights file {file}") > MOST_WEIGHTS:
        raise InvalidInput(f"weights file {file} has more than {MOST_WEIGHTS} bytes")
    state: State = {}
    of_torch = _is_of_torch(file)
    if of_torch:
        state, metadata = _read_pth(file)
    else:
        metadata = read_metadata(file, state)
    state = {k: v.to(torch.float32) for k, v in state.items() if not k.endswith(COUNTERS)}
    _check_finite(state, file)
    found = checksum(state)
    if of_torch:  # its tensors alone find nothing in a network of another input size
        network = json.dumps(metadata.get("network", {}), sort_keys=True)
        found = hashlib.sha256(f"{found} {network}".encode()).hexdigest()
    expected = metadata.setdefault("checksum", found)
    if found != expected:
        raise InvalidInput(f"weights file {file} is damaged: checksum {found}, expected {expected}")
    return state, metadata


def network_settings(path: PathLike) -> dict[str, Any]:
    """How the network of a weights file differs from torchvision's: ``input_size`` and ``anchor_scales`` of `build_model`.

    Empty for a file that does not say: torchvision's are used then. Raises InvalidInput as :func:`load_weights` does, and for
    other values.
    """
    file = Path(path)
    check_regular(file, f"weights file {file}")
    metadata = _read_pth(file)[1] if _is_of_torch(file) else read_metadata(file)
    network = metadata.get("network", {})
    size, scales = (
        (network.get(key) for key in ("input_size", "anchor_scales")) if isinstance(network, dict) else (0, 0)
    )
    numbers = isinstance(scales, list) and all(isinstance(scale, int | float) for scale in scales)
    whole = isinstance(size, int) and numbers and network.keys() == {"input_size", "anchor_scales"}
    if network and not whole:
        raise InvalidInput(
            f"weights file {file}: metadata network is {show_value(network)}, expected input_size and anchor_scales"
        )
    return dict(network)


def load_into(model: nn.Module, name: str, path: PathLike) -> dict[str, Any]:
    """Fill ``model``, made by ``build_model(name)``, from the file ``path``; return its metadata.

    Raises InvalidInput, naming the file, the value found and the one expected, for whatever
    :func:`load_weights` refuses, weights of another model, number or order of classes, an unknown order of classes, and missing,
    unexpected or wrongly shaped tensors. ``model`` may be partly filled then.
    """
    state, metadata = load_weights(path)
    if metadata.get("model", name) != name:
        raise InvalidInput(
            f"weights file {path} is for model {show_value(metadata['model'])}, expected {name!r}"
        )
    if (named := metadata.get("classes", CLASSES)) != CLASSES:
        raise InvalidInput(f"weights file {path} has classes {show_value(named)}, expected {CLASSES}")
    own = model.state_dict()
    for key in sorted(own.keys() & state.keys()):
        _check_shape(key, list(state[key].shape), list(own[key].shape), path)
    try:
        keys = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # a wrong shape under a name that an older torchvision gave
        raise InvalidInput(f"weights file {path} does not fit model {name!r}: {error}") from error
    missing, extra = [k for k in keys.missing_keys if not k.endswith(COUNTERS)], keys.unexpected_keys
    if missing or extra:
        raise InvalidInput(
            f"weights file {path} does not fit {name!r}: {len(missing)} tensors missing{_some(missing)}, "
            f"{len(extra)} unexpected{_some(extra)}"
        )
    if "classes" not in metadata:  # with logo and sticker exchanged, logos would be removed
        raise InvalidInput(
            f"weights file {path} does not say in which order its classes are: save it as "
            f"{{'model': model.state_dict(), 'classes': {CLASSES}}}"
        )
    return metadata


def read_metadata(file: Path, state: State | None = None) -> dict[str, Any]:
    """The checked metadata of a safetensors file; its tensors are put into ``state``."""
    try:
        with safe_open(file, framework="pt") as opened:
            text = (opened.metadata() or {}).get(_KEY)
            if state is not None:
                state.update({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"weights file {file} is no complete safetensors file: {error}") from error
    if text is None:
        raise InvalidInput(
            f"weights file {file} has no metadata {_KEY!r}, expected a file of `sticker-uq train`; tensors of another "
            "program need their classes: "
            f"torch.save({{'model': safetensors.torch.load_file({str(file)!r}), 'classes': {CLASSES}}}, FILE)"
        )
    metadata = parse_json(text, f"weights file {file}: metadata {_KEY!r}")
    if not isinstance(metadata, dict):
        raise InvalidInput(f"weights file {file} has metadata {show_value(text)}, expected a JSON object")
    if (found := metadata.get("format")) != FORMAT:
        raise InvalidInput(f"weights file {file} has format {show_value(found)}, expected {FORMAT}")
    for key in ("model", "classes", "checksum"):
        if key not in metadata:
            raise InvalidInput(f"weights file {file} has no {key!r} in its metadata, expected one")
    return metadata


def _read_pth(file: Path) -> tuple[State, dict[str, Any]]:
    size = file.stat().st_size
    if _is_archive(file) and _unpack(file) > size:
        raise InvalidInput(f"weights file {file} is a compressed archive, expected a file of torch.save")
    if _is_archive(file) and _is_script(file):
        command = _CONVERT_SCRIPT.format(file=str(file), classes=CLASSES)
        raise InvalidInput(f"weights file {file} is a program (TorchScript). {_KEEP}\n  {command}")
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InvalidInput(_refusal(file, str(error) or type(error).__name__)) from error
    about: dict[str, Any] = {}
    for key in WRAPPINGS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            about = {name: content[name] for name in ("classes", "network") if name in content}
            _tell_of_others(file, content, key)
            content = content[key]
            break
    tensors = content if isinstance(content, Mapping) else {}
    if not tensors or not all(isinstance(value, Tensor) for value in tensors.values()):
        keys = f" with {', '.join(show_value(key) for key in list(tensors)[:5])}" if tensors else ""
        raise InvalidInput(
            f"weights file {file} holds a {type(content).__name__}{keys}, expected a state dict of tensors, or one under "
            f"{', '.join(WRAPPINGS)}"
        )
    # torch.optim.swa_utils.AveragedModel counts
    tensors = {str(name): tensor for name, tensor in tensors.items() if name != "n_averaged"}
    while prefix := next((p for p in _PREFIXES if all(name.startswith(p) for name in tensors)), ""):
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    for key, tensor in tensors.items():
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        if not plain or tensor.is_complex():
            raise InvalidInput(
                f"weights file {file}: tensor {show_value(key)} is no plain tensor of real numbers"
            )
    # a tensor may repeat its few values any number of times
    filled = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if filled > size:
        raise InvalidInput(
            f"weights file {file} has {size} bytes, but its tensors fill {filled} bytes: expected every value in the file"
        )
    return tensors, about


def _tell_of_others(file: Path, content: Mapping[Any, Any], taken: str) -> None:
    """Warn of tensors beside those that are read, as ``model_ema`` beside ``model``: either may be those that were validated."""
    others = [
        name
        for name, value in content.items()
        if name != taken
        and isinstance(value, Mapping)
        and value
        and all(isinstance(v, Tensor) for v in value.values())
    ]
    if others:
        warnings.warn(
            f"weights file {file}: {taken!r} is read, not {', '.join(map(show_value, others))} beside it; to read another one "
            f"save it as {taken!r}",
            stacklevel=4,
        )


def _is_archive(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def _is_script(file: Path) -> bool:
    """Whether a zip archive of torch holds code."""
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _is_of_torch(file: Path) -> bool:
    """Whether the file is of ``torch.save``, else of safetensors; InvalidInput for one of a known other kind."""
    with file.open("rb") as stream:
        start = stream.read(24)
    for begins, what in _OTHERS.items():
        if start.startswith(begins):
            raise InvalidInput(f"weights file {file} is {what}")
    if start[4:8] == b"TFL3" or (start[:1] == b"\x08" and start[2:3] == b"\x12"):
        kind = "TensorFlow Lite" if start[4:8] == b"TFL3" else "ONNX"
        raise InvalidInput(f"weights file {file} is of {kind}: expected a model of PyTorch")
    if start[8:9] == b"{":  # a safetensors file begins with the length of its JSON text
        return False
    return start.startswith((b"PK\x03\x04", b"\x80")) or file.suffix in (".pth", ".pt")


def _refusal(file: Path, reason: str) -> str:
    """Why torch's restricted unpickler refused a file, and what to do."""
    found = re.search(r"GLOBAL ([\w.]+)", reason)
    if not found:
        damaged = "Unsupported operand" in reason
        said = "it is damaged, or no file of torch.save" if damaged else printable(reason.splitlines()[0])
        return f"weights file {file} cannot be read as plain tensors: {said}"
    return (
        f"weights file {file} holds more than plain tensors ({found[1]}), which is not loaded, because it can run programs. "
        f"{_KEEP}\n  {_CONVERT.format(file=str(file), classes=CLASSES)}"
    )


def _unpack(file: Path) -> int:
    """Bytes of the unpacked records of a zip archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            return sum(record.file_size for record in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise InvalidInput(f"weights file {file} cannot be read as plain tensors: {error}") from None


def _check_finite(state: Mapping[str, Tensor], path: PathLike) -> None:
    for name, tensor in state.items():
        if not (tensor.sum().isfinite() or torch.isfinite(tensor).all()):  # its sum says it sooner
            raise InvalidInput(f"weights {path}: tensor {name} has NaN or infinite values in {tensor.dtype}")


def _check_shape(key: str, found: list[int], expected: list[int], path: PathLike) -> None:
    if found == expected:
        return
    message = f"weights file {path}: tensor {key} has shape {found}, expected {expected}"
    # the rows of a class layer are proportional to the number of classes; no other layer depends on it
    class_layer = any(layer in key for layer in ("box_predictor", "classification_head"))
    if class_layer and found[1:] == expected[1:] and found[0] * CLASS_COUNT % expected[0] == 0:
        message += f" (weights of {found[0] * CLASS_COUNT // expected[0]} classes, expected {CLASS_COUNT})"
    raise InvalidInput(message)


def _some(names: list[str]) -> str:
    return f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""
