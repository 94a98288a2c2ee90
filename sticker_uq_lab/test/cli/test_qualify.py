# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq qualify``: from pictures to a bundle, also after a kill, and what it says where there are too few."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lab_helpers.robustness import specification_of
from lab_helpers.scenes import rendered
from sticker_uq.cell.bundle import Bundle
from sticker_uq.cli import app
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.gate import Policy
from sticker_uq.io.share import share_folder
from sticker_uq.perception.novelty.network import read_network, save_network
from sticker_uq.perception.novelty.quality import Auroc
from sticker_uq_lab.qualifying import candidate, qualification
from sticker_uq_lab.robustness import distances
from sticker_uq_lab.training import novelty_training, starts
from test.helpers.models import small_novelty, small_weights

PACKAGED = share_folder() / "config" / "limits.yaml"
STEPS = ("divide", "check", "train", "evaluate", "novelty", "calibrate", "test", "robustness")

DEFOCUS = {"name": "defocus", "transformation": "defocus", "strength": [1, 4], "probability": 0.5}


@pytest.fixture(scope="module", autouse=True)
def small_start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """``--start packaged`` and the novelty network begin with a smaller input: a fourth of the work."""
    folder = tmp_path_factory.mktemp("start")
    weights, novelty = small_weights(folder), small_novelty(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "packaged_weights", lambda name: weights)
        patch.setattr(candidate, "packaged_file", lambda name: novelty)
        yield


def laptops(folder: Path, count: int, seed: int = 300) -> Path:
    """A COCO folder of laptops, of which every second has a sticker."""
    return rendered(folder, range(seed, seed + count), (320, 240), stickers=lambda number: number % 2)


def qualify(data: Path, out: Path, *options: str) -> Result:
    trained = ["--start", "packaged", "--epochs", "1", "--novelty-epochs", "0"]
    smallest = [*trained, "--passes", "5", "--robustness-images", "2", "--near", "-1", "--jobs", "1"]
    return CliRunner().invoke(app, ["qualify", "--data", str(data), "--out", str(out), *smallest, *options])


@dataclass(frozen=True)
class Qualified:
    """Three calls with the same arguments: the first was interrupted before anything was calibrated, the last replaces."""

    data: Path
    out: Path
    options: tuple[str, ...]
    calls: list[Result]

    @property
    def work(self) -> Path:
        return self.out.with_name("bundle.work")


@pytest.fixture(scope="module")
def qualified(tmp_path_factory: pytest.TempPathFactory) -> Qualified:
    folder = tmp_path_factory.mktemp("qualify")
    data, out = laptops(folder / "data", 84), folder / "bundle"
    # one epoch makes a detector that finds next to nothing: how much it releases is tested in test_verdict.py
    options = ("--alpha", "0.3", "--beta", "0.95", "--min-removed", "0", "--split", "0.27,0.62,0.11")

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        # of 672 features, a fifth of all the work; test_distances.py has its formula
        patch.setattr(distances, "frechet_distance", lambda *_: 0.0)
        patch.setattr(qualification, "laptop_cell", lambda: specification_of(DEFOCUS, resamples=100))
        for module in (candidate, novelty_training):
            patch.setattr(module, "FEWEST", 20)
        with pytest.MonkeyPatch.context() as kill:
            kill.setattr(candidate, "assess_sources", killed)
            first = qualify(data, out, *options)
        return Qualified(
            data,
            out,
            options,
            [first, *(qualify(data, out, *options, *again) for again in ((), ("--overwrite",)))],
        )


def test_it_makes_a_bundle_that_fits_together(qualified):
    assert qualified.calls[1].exit_code == 0, qualified.calls[1].output
    assert "READY: Every requirement is met." in qualified.calls[1].output
    bundle = Bundle.load(qualified.out)
    assert Policy.load(bundle.policy).guarantee.wrongful_removal.level == 0.3
    assert bundle.manifest.files.keys() >= {"weights.safetensors", "weights_novelty.safetensors"}
    report = (qualified.work / "report.html").read_text()
    assert "<h1>Ready</h1>" in report
    assert "NOT MET" not in report
    assert "<td>defocus</td>" in report
    assert (qualified.work / "robustness" / "report.html").is_file()


def test_a_killed_call_resumes_with_the_step_that_was_not_done(qualified):
    killed, second, third = qualified.calls
    assert killed.exit_code == 130, killed.output
    assert "the same call resumes" in killed.output
    assert not qualified.out.exists() or killed.output.count("done before") == 0
    done = {name: f"{name:<11}" in killed.output for name in STEPS}
    assert [name for name in STEPS if done[name]] == list(STEPS[:5])
    before = [line.split()[0] for line in second.output.splitlines() if line.endswith("(done before)")]
    assert before == list(STEPS[:5])
    again = [line.split()[0] for line in third.output.splitlines() if line.endswith("(done before)")]
    assert again == list(STEPS)
    assert third.exit_code == 0
    assert Bundle.load(qualified.out).manifest.policy_hash in {
        json.loads((qualified.work / "steps" / "calibrate.json").read_text())["result"]["policy"]
    }


def test_the_bundle_of_a_call_is_not_replaced_by_another_call(qualified):
    other = qualify(qualified.data, qualified.out, *qualified.options, "--delta", "0.2")
    assert other.exit_code == 2
    assert "not an empty folder" in other.output
    assert Bundle.load(qualified.out).manifest.policy_hash


def test_other_levels_repeat_only_what_depends_on_them(qualified, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(qualified.work, work)
    options = (*qualified.options, "--beta", "0.01", "--work", str(work))
    found = qualify(qualified.data, tmp_path / "bundle", *options)
    assert found.exit_code == 1, found.output
    before = [line.split()[0] for line in found.output.splitlines() if line.endswith("(done before)")]
    assert before == list(STEPS[:5])
    assert (
        "levels      cannot be proved with these labels, whatever is trained: label at least" in found.output
    )
    assert (
        "CAUTION: the same calibrate part has been calibrated to other levels before (--alpha 0.3 --beta 0.95)"
        in found.output
    )
    assert "of them with a sticker" in found.output
    assert not (tmp_path / "bundle").exists()


def test_few_pictures_leave_weights_and_what_they_can_prove(tmp_path, monkeypatch):
    data = laptops(tmp_path / "data", 16, seed=900)
    options = ("--epochs", "2", "--batch-size", "4", "--allow-uncalibrated")
    train = candidate.train
    with monkeypatch.context() as patch:  # Ctrl-C in the first epoch
        patch.setattr(
            candidate, "train", lambda *given, **named: train(*given, **{**named, "stop": lambda: True})
        )
        assert qualify(data, tmp_path / "bundle", *options).exit_code == 130
    found = qualify(data, tmp_path / "bundle", *options)
    assert "train       resumes after epoch 1 of 2" in found.output
    assert found.exit_code == 1, found.output
    assert "NOT READY" in found.output
    assert "8 pictures to learn from, expected 50 or more" in found.output.partition("What to do: ")[2]
    assert "label at least" in found.output
    assert "more laptops" in found.output
    assert (
        "no guarantee: a real arm needs allow_uncalibrated:=true. WARNING: unmeasured_novelty: release"
        in found.output
    )
    assert (tmp_path / "bundle.work" / "novelty" / "weights.safetensors").is_file()
    report = (tmp_path / "bundle.work" / "report.html").read_text()
    assert "<h1>Not ready</h1>" in report
    assert "with 100 more" in report
    assert Bundle.load(tmp_path / "bundle").warning


def test_a_novelty_network_that_is_too_weak_ends_nothing(qualified, tmp_path):
    work, out = tmp_path / "work", tmp_path / "bundle"
    shutil.copytree(qualified.work, work)
    file, marker = work / "novelty" / "weights_novelty.safetensors", work / "steps" / "novelty.json"
    network = read_network(file)
    assert network.quality is not None
    network.quality = replace(network.quality, objects=Auroc(0.779, 0.654, 0.891))
    weights = str(work / "novelty" / "weights.safetensors")
    save_network(network, load_detector(DetectorSettings(weights=weights)), file)
    weakness = "AUROC of unknown objects 0.779 (0.654 to 0.891), expected a lower bound of 0.8 or more"
    step = json.loads(marker.read_text())
    step["result"] |= {"objects": {"value": 0.779, "low": 0.654, "high": 0.891}, "weakness": weakness}
    marker.write_text(json.dumps(step))
    again = (*qualified.options, "--work", str(work), "--no-robustness", "--allow-uncalibrated")
    made = qualify(qualified.data, out, *again)
    assert made.exit_code == 1, made.output
    assert (
        f"the novelty network is too weak to notice what the detector does not know: {weakness}"
        in made.output
    )
    assert "the policy was fitted without it" in made.output
    assert "calibrate   anew: weights changed" in made.output
    assert "WARNING: unmeasured_novelty: release" in made.output
    assert "stickers are released in unfamiliar scenes too" in (work / "report.html").read_text()
    assert Bundle.load(out).warning
    assert "no guarantee: a real arm needs allow_uncalibrated:=true" in made.output
    assert Policy.load(Bundle.load(out).policy).guarantee is None, "what is not ready promises nothing"
    assert Policy.load(work / "calibrate" / "policy.yaml").guarantee is not None


def test_bad_data_is_named(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    found = qualify(empty, tmp_path / "bundle")
    assert found.exit_code == 2
    assert "learn/annotations.json is missing" in found.output
    data = laptops(tmp_path / "data", 6)
    pictures = sorted((data / "images").iterdir())
    pictures[1].write_bytes(pictures[0].read_bytes())
    found = qualify(data, tmp_path / "bundle")
    assert found.exit_code == 2
    assert "have the same pixels" in found.output
    inside = qualify(data, tmp_path / "bundle", "--work", str(tmp_path / "bundle" / "work"))
    assert inside.exit_code == 2
    assert "outside of the bundle" in inside.output
    assert not (tmp_path / "bundle").exists()
    assert not list(tmp_path.rglob("report.html"))
