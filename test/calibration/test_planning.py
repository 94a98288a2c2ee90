# SPDX-License-Identifier: Apache-2.0
"""What labels allow to prove is known, and refused, before a detector runs."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import sticker_uq.cli.calibrate as command
from sticker_uq.calibration.control import Trial, p_values
from sticker_uq.calibration.fitting import Levels, certify, fit_policy
from sticker_uq.calibration.planning import Prospect, Units, count_units
from sticker_uq.calibration.probability import choose_kind
from sticker_uq.calibration.records import Record, numbered
from sticker_uq.cli import app
from sticker_uq.gate import Policy
from sticker_uq.io.coco import EncodedScene, write_coco
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq.testing.scenes import assessment, observed

Drawn = Callable[[int, int], list[Record]]


@pytest.mark.parametrize(("laptops", "clean"), [(230, 45), (31, 4)])
def test_the_proposed_levels_can_be_proved_and_lower_ones_cannot(laptops: int, clean: int) -> None:
    prospect = Prospect(Units(laptops, clean), 0.1)
    with pytest.raises(InvalidInput) as refused:
        prospect.check(0.001, 0.001)
    alpha, beta = (
        float(value) for value in re.findall(r"give --alpha (\S+) --beta (\S+)", str(refused.value))[0]
    )
    prospect.check(alpha, beta)
    for level, images in ((alpha, laptops), (beta, clean)):
        assert p_values([Trial(0.0, images, 0)], level)[0] <= 0.1
        assert p_values([Trial(0.0, images, 0)], 0.9 * level)[0] > 0.1
    with_one = [float(value) for value in re.findall(r"(\S+) with one bad", prospect.text())]
    for level, images in zip(with_one, (laptops, clean), strict=True):
        assert p_values([Trial(0.0, images, 1)], level)[0] <= 0.1


def test_only_what_certify_would_refuse_is_refused(drawn: Drawn) -> None:
    proof = drawn(1000, 60)
    laptops = np.arange(60)
    units = count_units(laptops, np.array([len(record.stickers) > 0 for record in proof]))
    prospect = Prospect(units, 0.1)
    assert units.laptops == 60
    fit = drawn(0, 100)
    draft = fit_policy(fit, Policy())
    with pytest.raises(InvalidInput, match=r"takes 61 or more laptops in the proof, there are 60"):
        prospect.check(prospect.alpha * 0.99, 0.9)
    with pytest.raises(InvalidInput, match="60 laptops prove"):
        certify(draft, fit, proof, Levels(prospect.alpha * 0.99, 0.9, 0.1))
    with pytest.raises(InvalidInput, match=f"there are {units.clean}"):
        prospect.check(0.5, prospect.beta * 0.99)


def test_a_laptop_counts_once_and_as_clean_by_any_image_without_sticker() -> None:
    laptops = numbered(["a", "a", "", "", "b"])
    assert count_units(laptops, np.array([True, False, True, False, True])) == Units(4, 2)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Twenty pictures of ten laptops, every other laptop with a sticker."""

    def scenes() -> Any:
        for number in range(20):
            sticker = number // 2 % 2
            picture = np.full((60, 80, 3), number, np.uint8)
            yield EncodedScene(
                seed=number,
                format="png",
                data=cv2.imencode(".png", picture)[1].tobytes(),
                width=80,
                height=60,
                boxes=np.array([[5, 5, 30, 30]] * sticker, np.float32).reshape(-1, 4),
                labels=np.array([ObjectClass.STICKER] * sticker, np.int64),
                image_fields={"workpiece_id": f"laptop {number // 2}"},
            )

    write_coco(tmp_path / "labelled", scenes())
    return tmp_path / "labelled"


def test_levels_that_cannot_be_proved_are_refused_before_the_detector_runs(
    labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DetectorStarted(Exception):
        pass

    def assess(*_: Any) -> None:
        raise DetectorStarted

    monkeypatch.setattr(command, "_assess", assess)
    options = ["calibrate", "--data", str(labelled), "--out", str(tmp_path / "policy.yaml")]
    refused = CliRunner().invoke(app, options)
    assert refused.exit_code == 2
    assert "20 labelled images; in the proof 6 laptops" in refused.output
    assert "--alpha 0.01 takes 230 or more laptops in the proof, there are 6" in refused.output
    proposed = re.findall(r"give (--alpha \S+ --beta \S+)", refused.output)[0].split()
    started = CliRunner().invoke(app, [*options, *proposed])
    assert "DetectorStarted" in started.output


def confident(seed: int, error: float) -> Record:
    """A picture with one object, a sticker of probability 0.7 that is right with probability 0.7 unless there is an ``error``."""
    rng = np.random.default_rng(seed)
    p = float(rng.uniform(0.05, 0.95))
    right = rng.random() < (1.0 - p if error else p)
    box = (0.0, 0.0, 40.0, 40.0)
    return Record(
        name=str(seed),
        boxes=np.array([box] * right, np.float32).reshape(-1, 4),
        labels=np.array([ObjectClass.STICKER] * right, np.int64),
        assessment=assessment(observed(box, probabilities=(1 - p, 0.0, p))),
    )


def test_isotonic_regression_that_makes_it_worse_is_not_used() -> None:
    good = [confident(seed, 0.0) for seed in range(40)]
    chosen = choose_kind(good, "isotonic")
    assert chosen.kind in ("temperature", "none")
    assert chosen.losses["isotonic"] > chosen.losses["none"]
    assert f"using {chosen.kind}" in chosen.text()
    assert choose_kind(good, "none").kind == "none"
    assert choose_kind(good[:3], "isotonic").kind == "isotonic"


def test_isotonic_regression_that_helps_is_kept() -> None:
    wrong = [confident(seed, 1.0) for seed in range(300)]
    chosen = choose_kind(wrong, "isotonic")
    assert chosen.kind == "isotonic"
    assert chosen.losses["isotonic"] < chosen.losses["none"]
