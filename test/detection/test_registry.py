# SPDX-License-Identifier: Apache-2.0
"""The registry: unknown names, and a detector of another package, the example of docs/detectors.md."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from sticker_uq.detection import (
    DetectorSettings,
    StochasticDetector,
    build_model,
    load_detector,
    save_weights,
)
from sticker_uq.detection.names import MODEL_NAMES, detector_names
from sticker_uq.detection.registry import DetectorEntry, detector_entry
from sticker_uq.perception.dil import LocalizationSettings, localize
from sticker_uq.perception.factory import load_perception
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import InvalidInput
from test.helpers.models import picture

FCOS = "fcos_resnet50_fpn"
SIZE = 96
ROOT = Path(__file__).parents[2]


def install(folder: Path, entry_points: str) -> None:
    """A distribution in ``folder`` with the lines ``entry_points`` in the group of detectors."""
    information = folder / "fcos_detector-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fcos-detector\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[sticker_uq.detectors]\n{entry_points}\n")


@pytest.fixture(scope="module")
def fcos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Weights of a detector that another package registers, with the module of the documentation."""
    tmp_path = tmp_path_factory.mktemp("fcos")
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/detectors.md").read_text(), re.DOTALL)
    (tmp_path / "fcos_detector.py").write_text(code)
    install(tmp_path, f"{FCOS} = fcos_detector:ENTRY")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        torch.manual_seed(0)
        model = build_model(FCOS, min_size=SIZE)
        torch.nn.init.normal_(model.head.classification_head.cls_logits.weight, std=0.5)
        path = tmp_path / "fcos.safetensors"
        save_weights(model, path, {"model": FCOS})
        yield path
    sys.modules.pop("fcos_detector", None)


def test_every_built_in_detector_has_an_entry_and_unknown_names_are_refused_with_the_known_ones():
    for name in MODEL_NAMES:
        assert isinstance(detector_entry(name), DetectorEntry)
    with pytest.raises(InvalidInput, match=f"unknown model 'yolo', expected one of {', '.join(MODEL_NAMES)}"):
        detector_entry("yolo")
    with pytest.raises(ValidationError, match="unknown model 'yolo'"):
        DetectorSettings(model="yolo")


@pytest.mark.parametrize(
    ("target", "problem"),
    [("nowhere:ENTRY", "cannot be loaded"), ("json:dumps", "is a function, expected a DetectorEntry")],
)
def test_a_broken_entry_point_is_named(target, problem, tmp_path, monkeypatch):
    install(tmp_path, f"broken = {target}\nssd300_vgg16 = {target}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match=f"detector 'broken': {target} {problem}"):
        detector_entry("broken")
    assert detector_entry("ssd300_vgg16").family == "ssd"  # no built-in one is replaced


def test_a_registered_detector_is_stochastic_and_has_a_dil(fcos):
    assert detector_names() == (*MODEL_NAMES, FCOS)
    settings = DetectorSettings(
        model=FCOS, weights=str(fcos), min_size=SIZE, passes=2, device="cpu", threads=0
    )
    detector = load_detector(settings)
    features = detector.encode(picture())
    samples = detector.sample(features, 2, seed=1)
    assert len(samples)
    fewer = detector.sample(features, 1, seed=1)
    np.testing.assert_array_equal(fewer.boxes, samples.boxes[samples.pass_index == 0])
    coarse = detector.with_settings(settings.model_copy(update={"precision": "bfloat16"}))
    assert len(coarse.sample(coarse.encode(picture()), 1, seed=1))
    reference = StochasticDetector(detector.model, settings, "", "reference")
    plain = reference.detect(reference.encode(picture()))
    np.testing.assert_allclose(plain.boxes, detector.detect(features).boxes, atol=1e-2)
    found = localize(detector.deterministic_pass(features), LocalizationSettings(), keep_saliency=True)
    assert 0 <= found.dil <= 1
    assert found.saliency.shape == picture().shape[:2]


def test_a_registered_detector_serves_perception(fcos):
    settings = PerceptionSettings(
        model=FCOS, weights=str(fcos), min_size=SIZE, passes=2, device="cpu", threads=0, novelty=False
    )
    scene = load_perception(settings).assess(picture())
    assert scene.model == FCOS
    assert scene.objects or scene.unstable
