# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq improve``: from the answers of a simulated cell to a candidate and its verdict, also after a kill."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from lab_helpers.scenes import rendered
from lab_helpers.shifts import SECOND, run_shift
from sticker_uq.cell import releases
from sticker_uq.cell.bundle import Bundle, create_bundle
from sticker_uq.cli import app
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import Calibration, Temperature
from sticker_uq.io.coco import read_coco
from sticker_uq.io.share import share_folder
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.improving import improvement
from sticker_uq_lab.kept_pieces import Steps
from sticker_uq_lab.rendering import render, sample_scene
from test.helpers.models import small_weights

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "improve.md"
DAY_NS = 86_400 * SECOND
SIZE = (320, 240)


def stickers(seed: int) -> int:
    return seed % 3


@dataclass(frozen=True)
class Cell:
    folder: Path
    bundle: Path

    def improve(self, out: Path, *options: str) -> Result:
        """The command of the page, with the folders of this cell and as little work as possible."""
        line, *_ = re.findall(r"^    sticker-uq (improve .*)$", PAGE.read_text(), re.MULTILINE)
        own = {
            "active": self.bundle,
            "audit": self.folder / "audit",
            "recording": self.folder / "bag",
            "candidate": out,
        }
        given = [str(own[Path(word).name]) if word.startswith("/") else word for word in shlex.split(line)]
        given += ["--exposure", str(self.folder / "exposure"), "--epochs", "1", "--newest", "2"]
        levels = ["--alpha", "0.9", "--beta", "0", "--delta", "0.4", "--jobs", "1"]
        return CliRunner().invoke(app, [*given, *levels, *options])


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    """Four laptops a day for a week, of which half of the released ones are spot checked, in a cell that asks about many."""
    folder = tmp_path_factory.mktemp("cell") / "week"
    settings = PerceptionSettings(
        passes=3, device="cpu", threads=1, novelty=False, weights=str(small_weights(folder.parent))
    )
    policy = folder.parent / "policy.yaml"
    packaged = (share_folder() / "config" / "limits.yaml").read_text()
    policy.write_text(packaged.replace("unmeasured_novelty: ask", "unmeasured_novelty: release"))
    bundle = create_bundle(folder.parent / "active", settings, policy)
    laptops = [
        (f"laptop-{seed}", render(sample_scene(seed, stickers=stickers(seed)), SIZE))
        for seed in range(700, 728)
    ]
    perception = load_perception(settings)
    questions, checks = run_shift(folder, laptops, perception, Policy.load(policy), 0.5, 10**18, DAY_NS // 4)
    assert questions >= 5
    assert checks >= 3
    rendered(folder / "exposure", range(4), SIZE, stickers=stickers)
    return Cell(folder, bundle.folder)


@pytest.fixture(scope="module")
def calls(cell: Cell, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Result]]:
    """Two calls: the first one was killed when it began to calibrate."""
    out = tmp_path_factory.mktemp("improved") / "candidate"

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(improvement.Improvement, "calibration", property(killed))
        first = cell.improve(out, "--old-test", str(cell.folder / "exposure"))
    return out, [
        first,
        cell.improve(out, "--old-test", str(cell.folder / "exposure"), "--allow-uncalibrated"),
    ]


def test_a_killed_call_goes_on_and_ends_with_a_candidate_and_one_page(calls):
    out, (killed, second) = calls
    assert killed.exit_code == 130, killed.output
    assert second.exit_code == 0, second.output
    before = [line.split()[0] for line in second.output.splitlines() if line.endswith("(done before)")]
    assert before == ["labels", "train", "novelty"]
    page = (out.parent / "candidate.work" / "report.html").read_text()
    for word in ("questions per laptop, newest", "wrongful releases, old test set", "person 1", "spot check"):
        assert word in page, word
    assert "Ada" not in page
    assert Bundle.load(out).comparison.verdict.upper() in second.output


def test_the_newest_laptops_are_in_no_other_part(calls):
    out, _ = calls
    labels = out.parent / "candidate.work" / "labels"
    parts = {
        folder.name: {item.workpiece_id for item in read_coco(folder)}
        for folder in labels.iterdir()
        if folder.is_dir()
    }
    judged = parts.pop("judge")
    assert len(judged) == 8
    assert all(judged.isdisjoint(others) for others in parts.values())
    assert parts["learn"].isdisjoint(parts["prove"] | parts.get("fit", set()))


def test_a_candidate_is_promoted_only_in_the_cell_it_was_compared_for(cell, calls, tmp_path):
    out, _ = calls
    candidate, active = Bundle.load(out), Bundle.load(cell.bundle)
    with pytest.raises(InvalidInput, match=r"active in .* is none"):
        releases.promote(tmp_path, candidate)
    releases.promote(tmp_path, active)
    compared = candidate.comparison
    if compared.verdict != "worse":
        releases.promote(tmp_path, candidate)
        assert releases.previous(tmp_path).hash == active.hash
    worse = Bundle(candidate.folder, candidate.manifest, "0")
    object.__setattr__(worse, "folder", tmp_path / "worse")
    (tmp_path / "worse").mkdir()
    text = compared.model_copy(
        update={"verdict": "worse", "active": releases.history(tmp_path).standing[-1].hash}
    )
    (tmp_path / "worse" / "comparison.json").write_text(text.model_dump_json())
    with pytest.raises(InvalidInput, match="is worse than the active one"):
        releases.promote(tmp_path, worse)
    (tmp_path / "worse" / "comparison.json").write_text(
        text.model_copy(update={"policy_hash": "other"}).model_dump_json()
    )
    with pytest.raises(InvalidInput, match="compares another candidate"):
        releases.promote(tmp_path, worse)


def test_what_cannot_work_is_refused_before_anything_is_trained(cell, tmp_path):
    out = tmp_path / "candidate"
    late = cell.improve(out, "--newest", "400")
    assert late.exit_code == 2
    assert "--newest 400" in late.output
    options = f"improve --bundle {cell.bundle} --audit {tmp_path} --recordings {tmp_path} --out {out}"
    nothing = CliRunner().invoke(app, options.split())
    assert nothing.exit_code == 2
    assert "holds no audit log" in nothing.output
    assert not out.exists()


def test_limits_move_with_what_both_weights_say_of_the_same_laptops(cell, calls, monkeypatch):
    seen: list[list[int]] = []

    def halved(limit: float, *sides: tuple[np.ndarray, np.ndarray]) -> float:
        seen.append([len(right) for _, right in sides])
        return limit / 2

    monkeypatch.setattr(improvement, "same_odds", halved)
    out, _ = calls
    bundle = Bundle.load(cell.bundle)
    settings = improvement.ImproveSettings(
        perception=bundle.settings(PerceptionSettings(device="cpu")),
        active_policy=bundle.policy,
        active_hash=bundle.hash,
        audit=(),
        recordings=(),
    )
    work = Steps(out.parent / "candidate.work")
    moved = improvement.Improvement(settings, work)._limits_now()
    assert (moved.min_probability, moved.notable_probability, moved.min_logo_probability) == (0.5, 0.05, 0.5)
    assert len(seen) == 3
    assert all(count > 0 for counts in seen for count in counts)
    calibrated = Temperature(temperature=1.0)
    policy = Policy.load(bundle.policy).model_copy(
        update={"calibration": Calibration(logo=calibrated, sticker=calibrated)}
    )
    monkeypatch.setattr(Policy, "load", lambda path: policy)
    assert improvement.Improvement(settings, work)._limits_now() is policy
