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
from sticker_uq.calibration.control import Trial, p_values, smallest_level
from sticker_uq.calibration.fitting import Levels, fit_policy
from sticker_uq.calibration.making import LabelEvidence
from sticker_uq.calibration.planning import Prospect, Units, count_units
from sticker_uq.calibration.probability import choose_kind
from sticker_uq.calibration.proving import Trials
from sticker_uq.calibration.records import Record, number_units
from sticker_uq.cli import app
from sticker_uq.gate import Policy
from sticker_uq.io.coco import EncodedScene, write_coco
from sticker_uq.scene import InvalidInput, ObjectClass
from sticker_uq.testing.scenes import assessment, object_at

Drawn = Callable[[int, int], list[Record]]


@pytest.mark.parametrize(("laptops", "dirty"), [(230, 45), (31, 4)])
def test_the_proposed_levels_can_be_proved_and_lower_ones_cannot(laptops, dirty):
    prospect = Prospect(Units(laptops, dirty), 0.1, 200)
    with pytest.raises(InvalidInput) as refused:
        prospect.check(0.001, 0.001)
    alpha, beta = (
        float(value) for value in re.findall(r"give --alpha (\S+) --beta (\S+)", str(refused.value))[0]
    )
    prospect.check(alpha, beta)
    for level, images in ((alpha, laptops), (beta, dirty)):
        assert p_values([Trial(0.0, images, 0)], level)[0] <= 0.1
        assert p_values([Trial(0.0, images, 0)], 0.9 * level)[0] > 0.1
    with_one = [float(value) for value in re.findall(r"(\S+) with one bad", prospect.text())]
    for level, images in zip(with_one, (laptops, dirty), strict=True):
        assert p_values([Trial(0.0, images, 1)], level)[0] <= 0.1


def test_only_what_trials_would_refuse_is_refused(drawn):
    proof = drawn(1000, 60)
    laptops = np.arange(60)
    units = count_units(laptops, np.array([len(record.stickers) > 0 for record in proof]))
    prospect = Prospect(units, 0.1, 100)
    assert units.laptops == 60
    fit = drawn(0, 100)
    draft = fit_policy(fit, Policy())
    with pytest.raises(InvalidInput, match=r"takes 61 or more laptops in the proof, there are 60"):
        prospect.check(prospect.levels[0] * 0.99, 0.9)
    with pytest.raises(InvalidInput, match="60 laptops prove"):
        Trials(draft, fit, proof).policy(Levels(prospect.levels[0] * 0.99, 0.9, 0.1))
    with pytest.raises(InvalidInput, match=f"there are {units.with_sticker}"):
        prospect.check(0.5, prospect.levels[1] * 0.99)


def test_a_laptop_counts_once_and_as_one_with_stickers_by_any_image_that_shows_one():
    laptops = number_units(["a", "a", "", "", "b"])
    assert count_units(laptops, np.array([True, False, True, False, True])) == Units(4, 3)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A hundred and twenty pictures of sixty laptops, every other laptop with a sticker."""

    def scenes() -> Any:
        for number in range(120):
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


def test_levels_that_cannot_be_proved_are_refused_before_the_detector_runs(labelled, tmp_path, monkeypatch):
    class DetectorStarted(Exception):
        pass

    def assess(*_: Any) -> None:
        raise DetectorStarted

    monkeypatch.setattr(command, "assess_sources", assess)
    options = ["calibrate", "--data", str(labelled), "--out", str(tmp_path / "policy.yaml")]
    refused = CliRunner().invoke(app, options)
    assert refused.exit_code == 2
    assert "120 labelled images; in the proof 36 laptops" in refused.output
    assert "--alpha 0.01 takes 230 or more laptops in the proof, there are 36" in refused.output
    unknown = CliRunner().invoke(app, [*options, "--signals", "improbability,scores"])
    assert "--signals scores: expected some of improbability" in unknown.output
    proposed = re.findall(r"give (--alpha \S+ --beta \S+)", refused.output)[0].split()
    assert "DetectorStarted" in CliRunner().invoke(app, [*options, *proposed]).output


def test_the_share_to_fit_on_is_named_that_would_do(labelled, tmp_path, monkeypatch):
    class DetectorStarted(Exception):
        pass

    def assess(*_: Any) -> None:
        raise DetectorStarted

    monkeypatch.setattr(command, "assess_sources", assess)

    def said(*options: str) -> str:
        given = ["calibrate", "--data", str(labelled), "--out", str(tmp_path / "policy.yaml"), *options]
        return " ".join(CliRunner().invoke(app, given).output.split())

    # 22 of 60 laptops prove 10 %, 20 are needed to fit on
    levels = ("--alpha", "0.1", "--beta", "0.5")
    refused = said(*levels, "--fit-share", "0.3")
    assert "18 laptops to fit limits on and 42 in the proof" in refused
    share = re.findall(r"or give --fit-share (\S+), with which these suffice", refused)[0]
    assert "DetectorStarted" in said(*levels, "--fit-share", share)
    assert "--fit-share" not in said("--alpha", "0.001", "--beta", "0")
    # 45 are needed for 5 %: all of them prove a score of others
    fitted = ("--alpha", "0.05", "--beta", "0", "--fit-share", "0")
    assert "takes 45 or more laptops in the proof, there are 36" in said("--alpha", "0.05", "--beta", "0")
    assert "has no risk score" in said(*fitted)
    base = ("--base", "config/policy.yaml")
    assert "DetectorStarted" in said(*fitted, *base)
    assert "--signals, --familiar with --fit-share 0" in said(
        *fitted, *base, "--signals", "improbability", "--familiar", "99"
    )
    assert "takes 114 or more laptops in the proof, there are 60" in said(
        *base, "--alpha", "0.02", "--beta", "0", "--fit-share", "0"
    )


def test_laptops_without_a_sticker_are_needed_to_fit_a_cut_off_and_not_to_prove_one():
    units = Units(60, 60)
    LabelEvidence(60, True, False, False, Prospect(units, 0.1, 0, 0.0)).check(0.1, 0.1)
    with pytest.raises(InvalidInput, match="no labelled image shows a laptop without stickers"):
        LabelEvidence(100, True, False, False, Prospect(units, 0.1, 40)).check(0.1, 0.1)


def test_a_hundred_more_labels_prove_what_the_binomial_says():
    now = Prospect(Units(30, 10), 0.1, 20)
    then = now.after(100)  # sixty of them prove, a third of these with a sticker
    assert (then.proof, then.fit) == (Units(90, 30), 60)
    assert then.levels == (smallest_level(90, 0.1), smallest_level(30, 0.1))
    assert (1 - then.levels[0]) ** 90 == pytest.approx(0.1)
    assert now.with_one_bad[0] > now.levels[0]
    assert Prospect(Units(0, 0), 0.1, 0).after(100).levels[1] == 1.0


def test_the_labels_that_lack_suffice_and_one_less_does_not():
    now = Prospect(Units(30, 10), 0.1, 20)
    # 45 in the proof prove 0.05, 22 with a sticker 0.1
    assert now.describe_shortfall(0.05, 0.21) == "label at least 25 more laptops"
    assert (
        now.describe_shortfall(0.05, 0.1)
        == "label at least 25 more laptops, at least 20 of them with a sticker"
    )
    assert "label at least 20 more laptops" in now.describe_shortfall(0.1, 0.1)
    assert now.describe_shortfall(0.1, 0.21) == now.describe_shortfall(0.1, 0.0) == ""
    few = Prospect(Units(30, 10), 0.1, 10)
    assert "9 more laptops" in few.describe_shortfall(0.1, 0.21)  # 49 leave 20 to fit on
    with pytest.raises(
        InvalidInput, match="10 laptops to fit limits on and 30 in the proof, each takes 20 or more"
    ):
        few.check(0.1, 0.21)


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
        assessment=assessment(object_at(box, probabilities=(1 - p, 0.0, p))),
    )


def test_isotonic_regression_that_makes_it_worse_is_not_used():
    good = [confident(seed, 0.0) for seed in range(40)]
    chosen = choose_kind(good, "isotonic")
    assert chosen.kind in ("temperature", "none")
    assert chosen.losses["isotonic"] > chosen.losses["none"]
    assert f"using {chosen.kind}" in chosen.text()
    assert choose_kind(good, "none").kind == "none"
    assert choose_kind(good[:3], "isotonic").kind == "isotonic"


def test_isotonic_regression_that_helps_is_kept():
    wrong = [confident(seed, 1.0) for seed in range(300)]
    chosen = choose_kind(wrong, "isotonic")
    assert chosen.kind == "isotonic"
    assert chosen.losses["isotonic"] < chosen.losses["none"]
