# SPDX-License-Identifier: Apache-2.0
"""Weights files: what is written comes back, and whatever does not fit is refused by name."""

import argparse
import json
import shlex
import warnings
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.detection.weights import (
    CLASSES,
    Unfilled,
    checksum,
    load_into,
    load_weights,
    network_settings,
    save_weights,
)
from sticker_uq.scene import InvalidInput

SSDLITE = "ssdlite320_mobilenet_v3_large"


@cache
def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build_model(SSDLITE)


def blank() -> nn.Module:
    """Such a model without its weights."""
    with Unfilled():
        other = build_model(SSDLITE)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.zero_()
    return other


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    save_weights(model(), path, {"model": SSDLITE, "seed": 3, "data": "rendered", "map50": 0.5})
    return path


def rewrite(path: Path, change: Any = None, tensors: dict[str, Tensor] | None = None) -> None:
    """Write a file of the same layout with other metadata or tensors, as a broken program would."""
    metadata = read_metadata(path)
    if change is not None:
        change(metadata)
    state = load_file(path) if tensors is None else tensors
    if tensors is not None:
        metadata["checksum"] = checksum(state)
    save_file(state, path, {"sticker_uq": json.dumps(metadata)})


def read_metadata(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return dict(json.loads(header["__metadata__"]["sticker_uq"]))


def test_what_is_saved_comes_back(saved):
    other = blank()
    metadata = load_into(other, SSDLITE, saved)
    assert metadata["seed"] == 3
    assert metadata["map50"] == 0.5
    assert metadata["classes"] == ["background", "logo", "sticker"] == CLASSES
    read = other.state_dict()
    for name, tensor in model().state_dict().items():
        assert torch.equal(read[name], tensor), name


def test_half_precision_is_small_and_keeps_its_checksum(tmp_path):
    half, full = tmp_path / "half.safetensors", tmp_path / "full.safetensors"
    digest = save_weights(model(), half, {"model": SSDLITE}, half=True)
    assert half.stat().st_size < 8e6
    other = blank()
    assert load_into(other, SSDLITE, half)["checksum"] == digest
    assert {t.dtype for n, t in other.state_dict().items() if "num_batches" not in n} == {torch.float32}
    kernel = "head.classification_head.module_list.0.1.weight"
    assert torch.equal(other.state_dict()[kernel], model().state_dict()[kernel].half().float())
    mean = "backbone.features.0.0.1.running_mean"
    assert torch.equal(other.state_dict()[mean], model().state_dict()[mean])
    assert save_weights(other, full, {"model": SSDLITE}) == digest
    assert full.stat().st_size > 1.8 * half.stat().st_size


def test_checksum_tells_tensors_apart():
    one = {"a": torch.zeros(2, 3), "b": torch.ones(2)}
    assert checksum(one) == checksum({"b": one["b"].clone(), "a": one["a"].half()})
    others = [{"a": torch.zeros(3, 2), "b": torch.ones(2)}, {"a": torch.zeros(2, 3), "c": torch.ones(2)}]
    others.append({"a": torch.zeros(2, 3), "b": torch.tensor([1.0, 1.0000001])})
    assert len({checksum(s) for s in [one, *others]}) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(model="ssd300_vgg16"), rf"is for model 'ssd300_vgg16', expected '{SSDLITE}'"),
        (
            lambda m: m.update(classes=["background", "sticker"]),
            r"classes \['background', 'sticker'\], expected",
        ),
        (lambda m: m.update(format=2), "has format 2, expected 1"),
        (lambda m: m.pop("model"), "has no 'model' in its metadata"),
        (lambda m: m.pop("classes"), "has no 'classes' in its metadata"),
        (lambda m: m.pop("checksum"), "has no 'checksum' in its metadata"),
    ],
)
def test_refuses_a_file_that_says_it_is_something_else_or_not_what_it_is(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(InvalidInput, match=message):
        load_into(blank(), SSDLITE, saved)


def test_refuses_missing_and_unexpected_tensors_and_values_that_are_not_finite(saved):
    state = load_file(saved)
    bias = "head.classification_head.module_list.0.1.bias"
    rewrite(
        saved, tensors={name: t for name, t in state.items() if name != bias} | {"surplus": torch.zeros(1)}
    )
    with pytest.raises(InvalidInput, match=rf"1 tensors missing \({bias}\), 1 unexpected \(surplus\)"):
        load_into(blank(), SSDLITE, saved)
    state[bias][0] = float("nan")
    rewrite(saved, tensors=state)
    with pytest.raises(InvalidInput, match=rf"{bias} has NaN or infinite values"):
        load_weights(saved)


def test_refuses_a_damaged_value(saved):
    data = bytearray(saved.read_bytes())
    data[-7] ^= 1
    saved.write_bytes(data)
    with pytest.raises(InvalidInput, match=r"is damaged: checksum [0-9a-f]{64}, expected [0-9a-f]{64}"):
        load_weights(saved)


@pytest.mark.parametrize("size", [0, 5, 1000, -1])
def test_refuses_a_truncated_file(saved, size):
    saved.write_bytes(saved.read_bytes()[:size])
    with pytest.raises(InvalidInput, match=r"weights\.safetensors is no complete safetensors file"):
        load_weights(saved)


def test_refuses_to_save_what_could_not_be_loaded(tmp_path):
    path = tmp_path / "bad.safetensors"
    with pytest.raises(InvalidInput, match="model 'yolo'"):
        save_weights(model(), path, {"model": "yolo"})
    large = nn.Linear(2, 2)
    nn.init.constant_(large.weight, 1e6)
    with pytest.raises(InvalidInput, match=r"weight has NaN or infinite values in torch\.float16"):
        save_weights(large, path, {"model": SSDLITE}, half=True)
    assert list(tmp_path.iterdir()) == []


def test_refuses_foreign_safetensors(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(InvalidInput, match="has no metadata 'sticker_uq'"):
        load_weights(path)


NETWORK = {"input_size": 480, "anchor_scales": [0.05, 0.1, 0.2, 0.3, 0.5, 0.9, 1.0]}


def test_what_a_state_dict_does_not_say_is_said_and_part_of_its_checksum(tmp_path):
    found = {}
    for name, beside in (("plain", {}), ("said", {"network": NETWORK}), ("same", {"network": NETWORK})):
        path = tmp_path / f"{name}.pth"
        torch.save({"model": model().state_dict(), "classes": CLASSES, **beside}, path)
        assert network_settings(path) == beside.get("network", {})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loaded = load_detector(DetectorSettings(weights=str(path), device="cpu"))
        found[name] = loaded.weights_hash
        told = [str(one.message) for one in caught if "no input size" in str(one.message)]
        assert [
            f"no input size in {path}: 320 px and torchvision's default boxes" in one for one in told
        ] == ([] if beside else [True])
    assert found["said"] == found["same"]
    assert len({*found.values(), checksum(model().state_dict())}) == 3
    torch.save({"model": model().state_dict(), "classes": CLASSES, "network": {"input_size": 480}}, path)
    with pytest.raises(InvalidInput, match=r"metadata network is .* expected input_size and anchor_scales"):
        network_settings(path)


def test_averaged_weights_are_read_and_those_beside_the_read_ones_are_named(tmp_path):
    state = model().state_dict()
    averaged = {"n_averaged": torch.tensor(3)} | {f"module.{name}": tensor for name, tensor in state.items()}
    torch.save({"model": averaged, "classes": CLASSES}, tmp_path / "averaged.pth")
    load_into(blank(), SSDLITE, tmp_path / "averaged.pth")
    torch.save({"model": state, "model_ema": averaged, "classes": CLASSES}, tmp_path / "ema.pth")
    with pytest.warns(UserWarning, match="'model' is read, not 'model_ema' beside it"):
        load_into(blank(), SSDLITE, tmp_path / "ema.pth")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x08\x08\x12\x07pytorch\x1a\x052.4.1", "of ONNX"),
        (b"\x1c\0\0\0TFL3", "of TensorFlow Lite"),
        (b"GGUF", "GGUF"),
    ],
)
def test_weights_of_another_framework_are_named(tmp_path, content, kind):
    (tmp_path / "a").write_bytes(content + bytes(100))
    with pytest.raises(InvalidInput, match=rf"{kind}.*: expected a model of PyTorch"):
        load_weights(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "key", "prefix"),
    [
        ("weights.pth", "model", ""),
        ("checkpoint.pth.tar", "state_dict", "module."),
        ("weights.bin", "model_state_dict", "model."),
        ("last.ckpt", "model", "_orig_mod.module."),
    ],
)
def test_reads_a_plain_state_dict_with_its_classes(tmp_path, name, key, prefix):
    path = tmp_path / name
    state = {prefix + tensor: value for tensor, value in model().state_dict().items()}
    torch.save({key: state, "classes": CLASSES, "epoch": 3}, path)
    assert network_settings(path) == {}
    other = blank()
    metadata = load_into(other, SSDLITE, path)
    assert metadata == {"checksum": load_weights(path)[1]["checksum"], "classes": CLASSES}
    assert torch.equal(other.state_dict()["backbone.features.0.0.0.weight"], next(model().parameters()))


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda s: s, "does not say in which order its classes are"),
        (lambda s: {"model": s}, r"'classes': \['background', 'logo', 'sticker'\]"),
        (
            lambda s: {"model": s, "classes": ["background", "sticker", "logo"]},
            r"has classes \['background', 'st",
        ),
        (lambda s: {"model": s, "classes": 3}, "has classes 3, expected"),
    ],
)
def test_refuses_a_state_dict_whose_classes_may_be_in_another_order(tmp_path, wrap, message):
    path = tmp_path / "weights.pth"
    torch.save(wrap(model().state_dict()), path)
    assert load_weights(path)[0]  # a training may start from it
    with pytest.raises(InvalidInput, match=message):
        load_into(blank(), SSDLITE, path)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(1).expand(1 << 20, 1 << 20), r"its tensors fill 4398046511104 bytes"),
        (torch.sparse_coo_tensor(size=(1 << 20, 1 << 20)), "no plain tensor of real numbers"),
        (torch.zeros(2, dtype=torch.complex64), "no plain tensor of real numbers"),
        (torch.zeros(2, device="meta"), "no plain tensor of real numbers"),
    ],
)
def test_refuses_tensors_that_are_larger_than_their_file(tmp_path, tensor, message):
    path = tmp_path / "bomb.pth"
    torch.save({"a": tensor}, path)
    with pytest.raises(InvalidInput, match=message):
        load_weights(path)


def test_refuses_a_compressed_archive(tmp_path):
    torch.save({"a": torch.zeros(1 << 20)}, tmp_path / "plain.pth")
    with (
        zipfile.ZipFile(tmp_path / "plain.pth") as plain,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(InvalidInput, match="is a compressed archive"):
        load_weights(tmp_path / "bomb.pth")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda: build_model(SSDLITE, num_classes=91).state_dict(),
         r"tensor .* has shape \[546\], expected \[18\] \(weights of 91 classes"),
        (lambda: {"fc.weight": torch.zeros(2, 2)}, r"does not fit .*missing .* 1 unexpected \(fc\.weight\)"),
    ],
)  # fmt: skip
def test_refuses_a_state_dict_of_other_classes_or_another_model(tmp_path, state, message):
    torch.save(state(), tmp_path / "other.pth")
    with pytest.raises(InvalidInput, match=rf"other\.pth.*{message}"):
        load_into(blank(), SSDLITE, tmp_path / "other.pth")


class Surprise:
    """Would run code when unpickled by a reader that allows it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("unpickled",)


def test_never_runs_code_of_a_pth(tmp_path, capsys):
    path = tmp_path / "evil.pth"
    torch.save({"a": Surprise()}, path)
    with pytest.raises(InvalidInput, match=r"evil\.pth holds more than plain tensors \(print\)"):
        load_weights(path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("inside", ["whole", "beside"])
def test_the_command_of_a_refusal_converts(tmp_path, inside, monkeypatch):
    beside = {"model": model().state_dict(), "classes": CLASSES, "args": argparse.Namespace(lr=1)}
    torch.save(model() if inside == "whole" else beside, tmp_path / "a.pth")
    with pytest.raises(InvalidInput, match="can run programs") as caught:
        load_weights(tmp_path / "a.pth")
    assert "\x1b" not in str(caught.value)
    monkeypatch.chdir(tmp_path)
    program, option, code = shlex.split(str(caught.value).splitlines()[-1])
    assert (program, option) == ("python", "-c")
    exec(code, {})
    assert load_weights(tmp_path / "plain.pth")[1]["classes"] == CLASSES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a pointer of Git LFS.*git lfs pull"),
        (b"<!DOCTYPE html><html>", "a page of a web site"),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "of Keras"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, content, message):
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        load_weights(tmp_path / "a.pth")


def test_refuses_a_program(tmp_path):
    torch.jit.save(torch.jit.script(nn.Linear(1, 1)), tmp_path / "a.pt")
    with pytest.raises(InvalidInput, match=r"is a program \(TorchScript\)"):
        load_weights(tmp_path / "a.pt")


def test_refuses_a_broken_pth(tmp_path):
    path = tmp_path / "broken.pth"
    torch.save({"a": torch.zeros(1000)}, path)
    whole = path.read_bytes()
    for content in (b"", b"no weights", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"broken\.pth cannot be read as plain tensors"):
            load_weights(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "something else")
    with pytest.raises(InvalidInput, match=r"broken\.pth cannot be read as plain tensors"):
        load_weights(path)
    for content in ([1, 2], {"a": 1}, {}):
        torch.save(content, path)
        with pytest.raises(InvalidInput, match="expected a state dict of tensors"):
            load_weights(path)


def test_refuses_a_missing_file(tmp_path):
    for path, message in ((tmp_path / "absent.safetensors", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(InvalidInput, match=message):
            load_weights(path)
